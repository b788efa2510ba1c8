"""Landmarks: the projection of a method that places the reservoir's rows themselves.

`places` are the landmarks' own coordinates. A row that equals a landmark gets the landmark's
place. Any other row is placed by the method's rule: `Eigenmap` (eigenmap.py) by Nyström's formula,
`Barycentre` (barycentre.py) as the weighted mean of its nearest landmarks.

A row costs O(r · features), for its distances to all r landmarks. Landmarks take 8 · r · features
bytes if dense. They are plain arrays, as in the reservoir's State, so a projection can be written
to a file as it is.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from stream_dr.checks import (
    WIDEST,
    check_array_shapes,
    check_at_least,
    check_csr_arrays,
    check_finite_arrays,
    check_within,
)
from stream_dr.projection import check_width
from stream_dr.rows.block import Rows
from stream_dr.solve.neighbours import column_medians, distance_chunks, fit_width, squared_norms, subtract_shift
from stream_dr.statistics.protocol import nested_state


@nested_state
class SampledLandmarks(NamedTuple):
    """Landmarks as plain arrays.

    Attributes
    ----------
    values : (r, features) float64, or (entries,) for CSR
    indices, indptr : arrays or None
        Those of CSR rows. None for dense rows.
    width : int
        Number of features.
    middle : (features,) float64
        Shift of sparse rows before distances are computed.
    same : float
        Squared distance up to which a row is a landmark.
    """

    values: np.ndarray
    indices: np.ndarray | None
    indptr: np.ndarray | None
    width: int
    middle: np.ndarray = np.zeros(0)
    same: float = 0.0

    def check(self) -> int:
        """Return the number of landmarks.

        Raises DamagedFile unless their arrays are rows of `width` features.
        """
        check_within(self, 0, WIDEST, "width")
        rows = len(self.values) if self.indptr is None else max(len(self.indptr) - 1, 0)
        check_csr_arrays(self, rows, self.width)
        check_array_shapes(self, np.float64, middle=(self.width if len(self.middle) else 0,))
        check_finite_arrays(self, "middle")
        check_at_least(self, 0.0, "same")
        return rows

    @property
    def rows(self) -> Rows:
        """Landmarks (r, features), ndarray or CSR."""
        if self.indices is None or self.indptr is None:
            return self.values
        shape = (len(self.indptr) - 1, self.width)
        return sp.csr_matrix((self.values, self.indices, self.indptr), shape=shape)


def to_landmarks(rows: Rows) -> SampledLandmarks:
    """Return rows (r, features) as landmarks."""
    if not rows.shape[0]:
        medians, same = np.zeros(rows.shape[1]), 0.0
    else:
        medians = column_medians(rows)
        # 1e-10 of the landmarks' distance from their medians. What a feature map makes of a row
        # differs in its last digits with the rows that come with it.
        same = 1e-20 * float(squared_norms(subtract_shift(rows, medians)).mean())
    if sp.issparse(rows):
        return SampledLandmarks(
            rows.data, rows.indices.astype(np.int32), rows.indptr.astype(np.int64), rows.shape[1], medians, same
        )
    return SampledLandmarks(rows, None, None, rows.shape[1], np.zeros(0), same)


def to_unit_variance(places: np.ndarray) -> np.ndarray:
    """Return places (r, components) divided by their standard deviation along each component.

    Constant components stay as they are.
    """
    if not len(places):
        return places
    deviations = places.std(axis=0)
    return places / np.where(deviations > 1e-9 * np.abs(places).max(axis=0), deviations, 1.0)


Rule = Callable[[Rows, np.ndarray], np.ndarray]
"""Function that places rows by their distances to the landmarks.

Takes rows and their squared distances (rows, r) to the landmarks. Returns places (rows,
components).
"""


def places_of_rows(landmarks: SampledLandmarks, places: np.ndarray, X: Rows, rule: Rule) -> np.ndarray:
    """Return the places (rows, components) of rows X.

    A row that equals a landmark gets the landmark's place, any other the place by `rule`. Raises
    WidthMismatch.
    """
    if sp.issparse(X):
        X = fit_width(X, landmarks.width)
    check_width(X, landmarks.width)
    out = np.zeros((X.shape[0], places.shape[1]))
    if not places.size:
        return out

    for part, squared in distance_chunks(X, landmarks.rows, landmarks.middle):
        closest = squared.argmin(axis=1)
        same = squared[np.arange(len(closest)), closest] <= landmarks.same
        chunk = places[closest]
        if not same.all():
            chunk[~same] = rule(X[part][~same], squared[~same])
        out[part] = chunk
    return out
