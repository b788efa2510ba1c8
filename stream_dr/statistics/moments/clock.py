"""clock: the weights of rows under decay [mathematics §1].

Row i weighs w_i · decay^(number of rows after row i). All sums are linear in the weights. So sums
are stored divided by a number, the `scale` s: true sum = s · stored sum. A batch of b rows changes
s to s · decay^b, and row i of the batch enters with the weight w_i · decay^(b−1−i) / s. The sums
stored so far are not touched, so sparse one-row updates do not cost O(d k). Once s has become
small, all stored sums are multiplied by a power of two, which is exact.

A batch costs O(rows). However rows are batched, the result equals ageing row by row to 1e-15. (One
flat factor per batch would be off by up to 386 %.)
"""

from collections.abc import Callable

import numpy as np

_SMALLEST = 2.0**-16
"""Scale below which the stored sums are renormalised."""


def max_span(decay: float) -> int:
    """Return the largest number of rows that can be weighed together.

    For this number, decay^rows is still above 2^-16.
    """
    return 1 << 62 if decay == 1.0 else max(1, int(16 * np.log(2) / -np.log(decay)))


def advance_scale(scale: float, decay: float, rows: int, renormalise: Callable[[float], None]) -> float:
    """Return the scale after `rows` more rows.

    Sums are stored divided by the scale: true sum = scale · stored sum.

    rows: number of rows, at most max_span(decay).
    renormalise: function that is called with a factor if the scale has become small. The function
        must multiply all stored sums by this factor.
    """
    after = scale * decay**rows
    if after >= _SMALLEST:
        return after
    mantissa, exponent = np.frexp(after)
    renormalise(float(np.ldexp(1.0, int(exponent))))
    return float(mantissa)


def clock_weights(weights: np.ndarray, decay: float, scale: float) -> np.ndarray:
    """Return the weights (rows,) with which a batch's rows enter the stored sums.

    Row i, of weight w_i, gets w_i · decay^(rows of the batch after row i) / scale.

    weights: (rows,) weights w_i.
    scale: scale of the stored sums after the batch (true sum = scale · stored sum).
    """
    if decay == 1.0:
        return weights
    return weights * decay ** np.arange(len(weights) - 1, -1, -1.0) / scale


def aged_weights(weights: np.ndarray, decay: float, age: int) -> np.ndarray:
    """Return the weights (rows,) that consecutive rows have now.

    weights: (rows,) weights with which the rows were learned.
    age: number of rows learned after the last of these rows.
    """
    return weights if decay == 1.0 else weights * decay ** (age + np.arange(len(weights) - 1, -1, -1.0))
