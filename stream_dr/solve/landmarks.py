"""Landmarks: the projection of a method that places the reservoir's rows themselves, and new rows relative to them.

`places` are the landmarks' own coordinates. A row that equals a landmark gets the landmark's place; any other row is
placed by the method's rule: `Eigenmap` (laplacian_eigenmaps.py) by Nyström's formula, `Barycentre` (lle.py) as the
weighted mean of its nearest landmarks.

Cost of apply: O(r · features) a row (distances to all r landmarks). Memory: the landmarks, 8 · r · features bytes
dense.

Why this way: the rows are held as plain arrays, as in the reservoir's State, so a projection can be written to a file
as it is.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from stream_dr.checks import WIDEST, at_least, csr, finite, shaped, within
from stream_dr.projection import check_width
from stream_dr.solve.neighbours import column_medians, distance_chunks, fit_width, shifted, squared_norms
from stream_dr.statistics.protocol import nested_state


@nested_state
class Kept(NamedTuple):
    """The landmarks: values (r, features), or CSR values (entries,) with indices and indptr; width: features.

    middle: (features,) what sparse rows are shifted by before distances. same: squared distance up to which a row is a
    landmark, 1e-10 of how far landmarks are from their middle: what a map makes of a row differs in its last digits with the
    rows that come with it.
    """

    values: np.ndarray
    indices: np.ndarray | None
    indptr: np.ndarray | None
    width: int
    middle: np.ndarray = np.zeros(0)
    same: float = 0.0

    def check(self) -> int:
        """The number of landmarks. Raises DamagedFile unless their arrays are rows of `width` features."""
        within(self, 0, WIDEST, "width")
        rows = len(self.values) if self.indptr is None else max(len(self.indptr) - 1, 0)
        csr(self, rows, self.width)
        shaped(self, np.float64, middle=(self.width if len(self.middle) else 0,))
        finite(self, "middle")
        at_least(self, 0.0, "same")
        return rows

    @property
    def rows(self) -> Any:
        """(r, features) ndarray or CSR."""
        if self.indices is None or self.indptr is None:
            return self.values
        shape = (len(self.indptr) - 1, self.width)
        return sp.csr_matrix((self.values, self.indices, self.indptr), shape=shape)


def kept(rows: Any) -> Kept:
    """Rows (r, features) as plain arrays."""
    if not rows.shape[0]:
        medians, same = np.zeros(rows.shape[1]), 0.0
    else:
        medians = column_medians(rows)
        same = 1e-20 * float(squared_norms(shifted(rows, medians)).mean())
    if sp.issparse(rows):
        return Kept(
            rows.data, rows.indices.astype(np.int32), rows.indptr.astype(np.int64), rows.shape[1], medians, same
        )
    return Kept(rows, None, None, rows.shape[1], np.zeros(0), same)


def of_variance_1(places: np.ndarray) -> np.ndarray:
    """Places (r, components) divided by their standard deviation along each component; a constant one stays."""
    if not len(places):
        return places
    spread = places.std(axis=0)
    return places / np.where(spread > 1e-9 * np.abs(places).max(axis=0), spread, 1.0)


Rule = Callable[[Any, np.ndarray], np.ndarray]
"""Places (rows, components) of rows at squared distances (rows, r) from the landmarks."""


def placed(landmarks: Kept, places: np.ndarray, X: Any, rule: Rule) -> np.ndarray:
    """Places (rows, components) of rows X: a landmark's own for a row that equals one, else the method's rule.

    Raises WidthMismatch.
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
