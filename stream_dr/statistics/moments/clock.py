"""Weights of rows under decay [mathematics §1].

With decay, the weight of every row shrinks by the factor `decay` with each later row. Row i of
weight w_i then weighs w_i · decay^(number of rows after row i).

Multiplying all sums by the decay after every row would be slow. So sums are stored divided by a
number s, the scale: true sum = s · stored sum. A batch of b rows only changes s to s · decay^b.
Row i of the batch (from 0) enters the stored sums with the weight w_i · decay^(b−1−i) / s, for the
new s. When s has become small, all stored sums are multiplied by a power of two, which is exact.

A batch costs O(rows). The result does not depend on how rows are batched, up to a relative error
of 1e-15. (If all rows of a batch had the same decay factor, the error would be up to 386 %.)
"""

from collections.abc import Callable

import numpy as np

from stream_dr.errors import CannotUnlearn

_SMALLEST = 2.0**-16
"""Smallest scale of stored sums (true sum = scale · stored sum).

If the scale falls below it, all stored sums are multiplied by a power of two.
"""


def max_rows_per_step(decay: float) -> int:
    """Return the largest number of rows to add in one step.

    The number is the largest for which decay^number is still above 2^-16, but at least 1.

    decay: factor by which the weight of a row shrinks with every later row.
    """
    return 1 << 62 if decay == 1.0 else max(1, int(16 * np.log(2) / -np.log(decay)))


def advance_scale_and_rescale(scale: float, decay: float, n_rows: int, multiply_sums: Callable[[float], None]) -> float:
    """Return the scale of stored sums after more rows.

    The scale is the factor from stored sums to true sums: true sum = scale · stored sum.

    scale: scale before these rows.
    decay: factor by which the weight of a row shrinks with every later row.
    n_rows: number of additional rows, at most max_rows_per_step(decay).
    multiply_sums: function that multiplies all stored sums by its argument. It is called if the
        scale has become small.
    """
    after = scale * decay**n_rows
    if after >= _SMALLEST:
        return after
    mantissa, exponent = np.frexp(after)
    multiply_sums(float(np.ldexp(1.0, int(exponent))))
    return float(mantissa)


def weights_for_stored_sums(weights: np.ndarray, decay: float, scale_after_batch: float) -> np.ndarray:
    """Return the weights with which a batch enters the stored sums.

    The result is (rows,). Each weight is multiplied by the decay once for every later row of the
    batch, and then divided by the scale.

    weights: (rows,) weights of the batch's rows.
    decay: factor by which the weight of a row shrinks with every later row.
    scale_after_batch: factor from stored sums to true sums after the batch.
    """
    if decay == 1.0:
        return weights
    return weights * decay ** np.arange(len(weights) - 1, -1, -1.0) / scale_after_batch


def decayed_weights(weights: np.ndarray, decay: float, rows_since: int) -> np.ndarray:
    """Return the present weights (rows,) of rows learned earlier.

    The rows were learned directly after each other. Decay has multiplied the weight of each row
    once for every later row.

    weights: (rows,) weights with which the rows were learned.
    decay: factor by which the weight of a row shrinks with every later row.
    rows_since: number of rows learned after the last of these rows.
    """
    return weights if decay == 1.0 else weights * decay ** (rows_since + np.arange(len(weights) - 1, -1, -1.0))


def check_can_unlearn(decay: float) -> None:
    """Raise CannotUnlearn if older rows weigh less than newer rows.

    decay: factor by which the weight of a row shrinks with every later row.
    """
    if decay != 1.0:
        raise CannotUnlearn(
            f"decay={decay}: the sums do not know how many rows came after the rows to unlearn, so their present weight "
            "is not known. Nothing was changed. Learn the other rows again without them, or use decay=1."
        )
