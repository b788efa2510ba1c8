"""BasisState: frozen vectors and means of CCIPCA or incremental SKM.

These two methods update p vectors and c means of rows after each row. The vectors are stored as a
product of two matrices: basis columns D (d, p + c) for d features, and coefficients M (p, p + c).
D and M are stored, not their product. So a method that continues from a snapshot gives exactly the
same bits as a method that never stopped.

Memory is 8 · d · (p + c) bytes for D, and 8 · (2 p + c) · (p + c) bytes for M and the inner
products of the vectors and means.
"""

from typing import NamedTuple

import numpy as np

from stream_dr.checks import check_at_least, check_dtype_and_shapes, check_finite_arrays, check_within, field_error
from stream_dr.rows.raw_rows import LARGEST
from stream_dr.statistics.protocol import register_nested_state

SMALLEST_UNIT = 2.0**-300
"""Lower bound of the number `unit` by which rows are multiplied.

`unit` is a power of 2 that prevents overflow for very long rows. It stays above this bound even
for rows with the largest allowed values.
"""


@register_nested_state
class BasisState(NamedTuple):
    """Immutable vectors and means of CCIPCA or IncrementalSKM.

    There are up to p vectors (the components) and c means of rows. The vectors are the columns of
    D Mᵀ, for basis columns D and coefficients M. So vector i is a combination of the columns of D,
    and row i of M holds the coefficients.

    Attributes
    ----------
    columns : (features, p + c) float64
        D. Its last c columns are sums of rows, one for each mean.
    mixing : (p, p + c) float64
        M.
    gram : (p + c, p + c) float64
        Inner products of the p vectors and c means with each other.
    lengths : (2, p) float64
        Row 0 holds the squared lengths of the first p columns of D. The squared length of a vector
        is computed as a sum of terms that may cancel. Row 1 holds the size of these terms, which
        shows how many digits are lost.
    shift : (features,) float64 or None
        Row that is subtracted from dense rows. None for sparse rows, or before any row.
    counts : (c,) float64
        Number of rows in each mean.
    live : int
        Number of vectors so far, at most p. A new vector is added when a row is not in the span of
        the vectors so far.
    turned : int
        Number of rows that had been learned when D was last replaced by the vectors D Mᵀ, and M by
        the identity. This removes rounding errors.
    unit : float
        Power of 2 by which rows are multiplied. 1 unless rows are longer than 1e50.
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

    def check(self, n_features: int, n_means: int, rows_learned: int) -> None:
        """Raise DamagedFile unless the arrays fit the given sizes.

        n_features: number of features.
        n_means: number of means.
        rows_learned: number of rows learned.
        """
        # The arrays must have the right shapes and finite values.
        p = len(self.mixing)
        k = p + n_means
        check_dtype_and_shapes(
            self, np.float64, columns=(n_features, k), mixing=(p, k), gram=(k, k), lengths=(2, p), counts=(n_means,)
        )
        check_finite_arrays(self, "columns", "mixing", "gram", "lengths", "shift")

        check_at_least(self, 0.0, "counts")
        # A row adds at most one vector, so there are at most as many vectors as rows.
        check_within(self, 0, min(p, rows_learned) + 1, "live")
        check_within(self, 0, rows_learned + 1, "turned")
        if self.shift is not None:
            check_dtype_and_shapes(self, np.float64, shift=(n_features,))
            if (np.abs(self.shift) > 2.0 * LARGEST).any():
                raise field_error(self, "shift", "larger than any row", f"at most {LARGEST} in size, as rows are")

        # The code divides by `unit` and by the diagonal of `mixing`, so these must not be 0.
        if not SMALLEST_UNIT <= self.unit <= 1.0:
            raise field_error(self, "unit", f"{self.unit}", f"from {SMALLEST_UNIT} to 1")
        if not np.diagonal(self.mixing)[: self.live].all():
            raise field_error(self, "mixing", "0 on the diagonal", f"not 0 on the diagonal of {self.live} rows")

    def vectors(self) -> np.ndarray:
        """Return the vectors as the columns of a matrix.

        The matrix is (features, vectors). The vectors are not scaled to unit length. Costs
        O(d p (p + c)) for d features, p vectors and c means.
        """
        vectors: np.ndarray = self.columns @ self.mixing[: self.live].T
        return vectors / self.unit**2

    def means(self) -> np.ndarray:
        """Return the c means as the columns of a matrix.

        The matrix is (features, c). A mean of no rows is zero if rows are sparse. If rows are
        dense, a mean of no rows is `shift`, the row that is subtracted from all rows.
        """
        p = self.mixing.shape[0]
        means: np.ndarray = self.columns[:, p:] / np.maximum(self.counts, 1.0)
        return (means if self.shift is None else means + self.shift[:, None]) / self.unit


def normalised_long_columns_and_lengths(
    vectors: np.ndarray, min_relative_length: float
) -> tuple[np.ndarray, np.ndarray]:
    """Scale vectors to unit length, without very short vectors.

    Returns the scaled vectors as columns, and the lengths that they had before. A vector is
    dropped if its length is at most `min_relative_length` times the length of the longest vector.

    vectors: (features, k), k vectors as columns.
    min_relative_length: smallest relative length.
    """
    size = max(vectors.max(initial=0.0), -vectors.min(initial=0.0)) or 1.0
    scaled = vectors / size
    # Compute the column lengths by einsum, which takes a third of the time of np.linalg.norm.
    lengths = np.sqrt(np.einsum("ij,ij->j", scaled, scaled)) * size
    long_enough = lengths > min_relative_length * lengths.max(initial=0.0)
    return np.ascontiguousarray(vectors[:, long_enough] / lengths[long_enough]), lengths[long_enough]
