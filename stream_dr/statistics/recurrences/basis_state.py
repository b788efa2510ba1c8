"""BasisState: the frozen basis of a recurrence, and its vectors at unit length.

A recurrence (CCIPCA or incremental SKM) updates p vectors and c means after each row. They are
stored as the product of two factors, D (d, p + c) for d features and M (p, p + c) of coefficients.
Because the factors and not their product are stored, a recurrence that continues from a snapshot
is bit-equal to one that never stopped. Memory is 8 · d · (p + c) bytes, and 8 · (2 p + c) · (p +
c) for the rest.
"""

from typing import NamedTuple

import numpy as np

from stream_dr.checks import check_array_shapes, check_at_least, check_finite_arrays, check_within, field_error
from stream_dr.rows.raw_rows import LARGEST
from stream_dr.statistics.protocol import nested_state

SMALLEST_UNIT = 2.0**-300
"""Lower bound of `unit`, the power of 2 that rows are multiplied by.

The bound is smaller than the unit for the longest rows, 2^100 / LARGEST.
"""


@nested_state
class BasisState(NamedTuple):
    """Frozen p vectors (components) and c means of a recurrence over rows.

    The vectors are D Mᵀ: vector i is the sum of D's columns with row i of M as coefficients.

    Attributes
    ----------
    columns : (features, p + c) float64
        D. Its last c columns are plain sums of rows.
    mixing : (p, p + c) float64
        M.
    gram : (p + c, p + c) float64
        Inner products of the p vectors and c means with each other.
    lengths : (2, p) float64
        Row 0 holds the squared lengths of D's first p columns. Row 1 holds, for each vector, the
        size of the terms whose sum is its squared length.
    shift : (features,) float64 or None
        Row that is subtracted from dense rows. None for sparse rows, or before any row.
    counts : (c,) float64
        Number of rows in each mean.
    live : int
        Number of vectors so far, at most p. A new vector is added when a row is not in the span of
        the vectors so far.
    turned : int
        Number of the row at which D was last replaced by D Mᵀ, and M by the identity.
    unit : float
        Power of 2 that rows are multiplied by. 1 unless rows are longer than 1e50.
    """

    columns: np.ndarray
    mixing: np.ndarray
    gram: np.ndarray
    lengths: np.ndarray
    shift: np.ndarray | None
    counts: np.ndarray
    live: int
    turned: int
    unit: float

    def check(self, features: int, means: int, rows: int) -> None:
        """Raise DamagedFile unless the arrays fit the given sizes.

        features: number of features.
        means: number of means.
        rows: number of rows learned.
        """
        p = len(self.mixing)
        k = p + means
        check_array_shapes(
            self, np.float64, columns=(features, k), mixing=(p, k), gram=(k, k), lengths=(2, p), counts=(means,)
        )
        check_finite_arrays(self, "columns", "mixing", "gram", "lengths", "shift")

        check_at_least(self, 0.0, "counts")
        # A row adds at most one vector, so there are at most as many vectors as rows.
        check_within(self, 0, min(p, rows) + 1, "live")
        check_within(self, 0, rows + 1, "turned")
        if self.shift is not None:
            check_array_shapes(self, np.float64, shift=(features,))
            if (np.abs(self.shift) > 2.0 * LARGEST).any():
                raise field_error(self, "shift", "larger than any row", f"at most {LARGEST} in size, as rows are")

        if not SMALLEST_UNIT <= self.unit <= 1.0:
            raise field_error(self, "unit", f"{self.unit}", f"from {SMALLEST_UNIT} to 1")
        if not np.diagonal(self.mixing)[: self.live].all():
            raise field_error(self, "mixing", "0 on the diagonal", f"not 0 on the diagonal of {self.live} rows")

    def vectors(self) -> np.ndarray:
        """Return the vectors so far as columns (features, vectors).

        The vectors are not normalised. Costs O(d p (p + c)) for d features, p vectors and c means.
        """
        return self.columns @ self.mixing[: self.live].T / self.unit**2

    def means(self) -> np.ndarray:
        """Return the means of rows as columns (features, means).

        If a mean has no rows, its column is zero for sparse rows. For dense rows the column is the
        row that is subtracted from all rows.
        """
        p = self.mixing.shape[0]
        means = self.columns[:, p:] / np.maximum(self.counts, 1.0)
        return (means if self.shift is None else means + self.shift[:, None]) / self.unit


def long_unit_columns(vectors: np.ndarray, smallest: float) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors at unit length, C-ordered, and their former lengths.

    Vectors up to `smallest` times as long as the longest vector are dropped.

    vectors: (features, k), one vector in each column.
    """
    size = max(vectors.max(initial=0.0), -vectors.min(initial=0.0)) or 1.0
    scaled = vectors / size
    # einsum takes a third of the time of np.linalg.norm.
    lengths = np.sqrt(np.einsum("ij,ij->j", scaled, scaled)) * size
    long_enough = lengths > smallest * lengths.max(initial=0.0)
    return np.ascontiguousarray(vectors[:, long_enough] / lengths[long_enough]), lengths[long_enough]
