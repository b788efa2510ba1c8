"""singular: singular values of what is finite.

Why this way: LAPACK's factorisation does not end on some matrices that hold an infinity, as sums of huge numbers may.
"""

import numpy as np

from stream_dr.errors import NotFinite


def singular(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Left singular vectors (m, r), singular values (r,) and right ones (r, k) of (m, k), r = min(m, k).

    Raises NotFinite.
    """
    if not np.isfinite(matrix).all():
        raise NotFinite("sums of the rows are so large that they overflow: there is no solution. Scale the rows.")
    return np.linalg.svd(matrix, full_matrices=False)
