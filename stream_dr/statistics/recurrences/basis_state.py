"""BasisState: the frozen basis of a recurrence, and its vectors at unit length.

D and M are kept as they are, not multiplied out, so continuing from a snapshot is bit-equal to
never having stopped. Memory is 8 · d · (p + c) bytes, and 8 · (2 p + c) · (p + c) for the rest.
"""

from typing import NamedTuple

import numpy as np

from stream_dr.checks import check_array_shapes, check_at_least, check_finite_arrays, check_within, field_error
from stream_dr.rows.raw_rows import LARGEST
from stream_dr.statistics.protocol import nested_state

SMALLEST_UNIT = 2.0**-300
"""Lower bound of the unit, below that of the longest rows: 2^100 over LARGEST."""


@nested_state
class BasisState(NamedTuple):
    """A frozen BlockBasis.

    Attributes
    ----------
    columns : (features, p + c) float64
        D.
    mixing : (p, p + c) float64
        M.
    gram : (p + c, p + c) float64
        Gram matrix of the current vectors and means.
    lengths : (2, p) float64
        Squared lengths of D's first p columns, and the size of the terms that the Gram diagonal
        was summed from.
    shift : (features,) float64 or None
        Subtracted from dense rows. None for sparse rows, or before any row.
    counts : (c,) float64
        Rows in each sum.
    live : int
        Components started.
    turned : int
        Row number of the last re-multiplication.
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
        """Raise DamagedFile unless it is a basis of these sizes.

        features, means, rows: numbers of them.
        """
        p = len(self.mixing)
        k = p + means
        check_array_shapes(
            self, np.float64, columns=(features, k), mixing=(p, k), gram=(k, k), lengths=(2, p), counts=(means,)
        )
        check_finite_arrays(self, "columns", "mixing", "gram", "lengths", "shift")

        check_at_least(self, 0.0, "counts")
        # A row starts one component at most.
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
        """Return v_1 … v_live as columns (features, live), not normalised.

        Costs O(d p (p + c)).
        """
        return self.columns @ self.mixing[: self.live].T / self.unit**2

    def means(self) -> np.ndarray:
        """Return the means as columns (features, c).

        A mean without rows is zero, or the shift of dense rows.
        """
        p = self.mixing.shape[0]
        means = self.columns[:, p:] / np.maximum(self.counts, 1.0)
        return (means if self.shift is None else means + self.shift[:, None]) / self.unit


def long_unit_columns(vectors: np.ndarray, smallest: float) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors at unit length, and their lengths.

    Those up to `smallest` times the longest are left out.

    vectors: (features, k). The result is C-ordered.
    """
    size = max(vectors.max(initial=0.0), -vectors.min(initial=0.0)) or 1.0
    scaled = vectors / size
    # A third of the time of np.linalg.norm.
    lengths = np.sqrt(np.einsum("ij,ij->j", scaled, scaled)) * size
    long_enough = lengths > smallest * lengths.max(initial=0.0)
    return np.ascontiguousarray(vectors[:, long_enough] / lengths[long_enough]), lengths[long_enough]
