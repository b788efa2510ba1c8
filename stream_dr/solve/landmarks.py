"""Projections that place new rows by their distances to landmarks.

Landmarks are the rows of a reservoir (a random sample of the stream). `places` are the landmarks'
own coordinates in the projection. A new row that equals a landmark gets the landmark's
coordinates. The coordinates of any other row are computed by the projection's own rule:

* `Eigenmap` (eigenmap.py) uses Nyström's formula.
* `BarycentricProjection` (barycentre.py) uses the weighted mean of the nearest landmarks'
  coordinates.

Placing a row costs O(r · features), for the row's distances to all r landmarks. Dense landmarks
take 8 · r · features bytes. Landmarks are stored as plain arrays, so that a projection can be
written to a file without conversion.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from stream_dr import checks
from stream_dr.projection import check_n_features
from stream_dr.rows.block import Rows
from stream_dr.solve.nearest_mean import squared_lengths
from stream_dr.solve.neighbours import (
    fit_sparse_width,
    squared_distance_chunks,
    subtract_shift_keeping_sparsity,
    upper_column_medians,
)
from stream_dr.statistics.protocol import register_nested_state


@register_nested_state
class SampledLandmarks(NamedTuple):
    """Landmarks (sampled rows of the stream) as plain arrays.

    Attributes
    ----------
    values : (r, features) float64, or (entries,) for CSR rows
        Values of the r landmarks.
    indices : (entries,) int32 or None
        Column of each entry of CSR rows. None for dense rows.
    indptr : (r + 1,) int64 or None
        Start of each CSR row in `values` and `indices`. None for dense rows.
    width : int
        Number of features.
    middle : (features,) float64
        Vector that is subtracted from sparse rows before distances are computed, for accuracy.
    same : float
        Squared distance up to which a row counts as equal to a landmark.
    """

    values: np.ndarray
    indices: np.ndarray | None
    indptr: np.ndarray | None
    width: int
    middle: np.ndarray = np.zeros(0)
    same: float = 0.0

    def check(self) -> None:
        """Raise DamagedFile unless the arrays are rows of `width` features."""
        checks.check_within(self, 0, checks.FEATURE_COUNT_LIMIT, "width")
        checks.check_csr_or_dense_rows(self, self.n_landmarks, self.width)
        checks.check_dtype_and_shapes(self, np.float64, middle=(self.width if len(self.middle) else 0,))
        checks.check_finite_arrays(self, "middle")
        checks.check_at_least(self, 0.0, "same")

    @property
    def n_landmarks(self) -> int:
        """Number of landmarks."""
        return len(self.values) if self.indptr is None else max(len(self.indptr) - 1, 0)

    @property
    def rows(self) -> Rows:
        """Landmarks (r, features), r sampled rows, dense or CSR."""
        if self.indices is None or self.indptr is None:
            return self.values
        shape = (len(self.indptr) - 1, self.width)
        return sp.csr_matrix((self.values, self.indices, self.indptr), shape=shape)


def as_landmarks(rows: Rows) -> SampledLandmarks:
    """Return sampled rows as landmarks.

    Landmarks are rows with which a projection compares new rows. The values are not copied.

    rows: (r, features), the sampled rows, dense or CSR.
    """
    # `same` is the squared distance up to which a row counts as equal to a landmark.
    # The distance is not 0, because a feature map may return one row with different last digits.
    if not rows.shape[0]:
        medians, same = np.zeros(rows.shape[1]), 0.0
    else:
        medians = upper_column_medians(rows)
        same = 1e-20 * float(squared_lengths(subtract_shift_keeping_sparsity(rows, medians)).mean())

    if sp.issparse(rows):
        indices, indptr = rows.indices.astype(np.int32), rows.indptr.astype(np.int64)
        return SampledLandmarks(rows.data, indices, indptr, rows.shape[1], medians, same)
    return SampledLandmarks(rows, None, None, rows.shape[1], np.zeros(0), same)


def scale_to_unit_variance(coordinates: np.ndarray) -> np.ndarray:
    """Return coordinates scaled to variance 1 along each component.

    coordinates: (r, components), coordinates of r rows. A constant component is returned
        unchanged.
    """
    if not len(coordinates):
        return coordinates
    deviations = coordinates.std(axis=0)
    return coordinates / np.where(deviations > 1e-9 * np.abs(coordinates).max(axis=0), deviations, 1.0)


PlacementRule = Callable[[Rows, np.ndarray], np.ndarray]
"""Function that computes new rows' coordinates from their distances to landmarks.

Landmarks are r sampled rows of the stream. The function's first argument are the new rows (rows,
features). The second argument are their squared distances (rows, r) to the landmarks. The function
returns coordinates (rows, components).
"""


def place_rows(landmarks: SampledLandmarks, places: np.ndarray, X: Rows, place_other_rows: PlacementRule) -> np.ndarray:
    """Return the coordinates (rows, components) of new rows.

    Landmarks are sampled rows whose coordinates are known. A new row that equals a landmark up to
    rounding errors gets the landmark's coordinates. Any other row gets the coordinates that
    `place_other_rows` returns.

    places: (r, components), coordinates of the r landmarks.
    X: (rows, features), dense or CSR.
    place_other_rows: function of rows and their squared distances to the landmarks.

    Raises WidthMismatch if dense rows have another number of features than the landmarks.
    """
    X = fit_sparse_width(X, landmarks.width)
    check_n_features(X.shape[1], landmarks.width)
    out = np.zeros((X.shape[0], places.shape[1]))
    if not places.size:
        return out

    for part, squared in squared_distance_chunks(X, landmarks.rows, landmarks.middle):
        # A new row that equals its nearest landmark gets the landmark's coordinates.
        # The function `place_other_rows` computes the coordinates of all other new rows.
        closest = squared.argmin(axis=1)
        same = squared[np.arange(len(closest)), closest] <= landmarks.same
        chunk = places[closest]
        if not same.all():
            chunk[~same] = place_other_rows(X[part][~same], squared[~same])
        out[part] = chunk
    return out
