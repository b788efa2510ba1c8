"""clock: the weights under decay, where row i weighs w_i · decay^(rows after it) [mathematics §1].

All sums are linear in the weights, so they are kept in units of a `scale` s: true sum = s · stored
sum. A batch of b rows moves s to s · decay^b, and its row i enters with w_i · decay^(b−1−i) / s.
Stored sums are not touched, so sparse one-row updates do not cost O(d k). When s has become small,
everything stored is multiplied by a power of two, which is exact.

A batch costs O(rows). The result equals ageing row by row to 1e-15 for every batching. (A flat
factor per batch would be 386 % off.)
"""

from collections.abc import Callable

import numpy as np

_SMALLEST = 2.0**-16
"""Scale below which the stored sums are renormalised."""


def max_span(decay: float) -> int:
    """Return how many rows can be weighed together. decay^span stays above 2^-16."""
    return 1 << 62 if decay == 1.0 else max(1, int(16 * np.log(2) / -np.log(decay)))


def advance_scale(scale: float, decay: float, rows: int, renormalise: Callable[[float], None]) -> float:
    """Return the scale after `rows` ≤ max_span(decay) more rows.

    `renormalise(factor)` must multiply all stored sums by factor.
    """
    after = scale * decay**rows
    if after >= _SMALLEST:
        return after
    mantissa, exponent = np.frexp(after)
    renormalise(float(np.ldexp(1.0, int(exponent))))
    return float(mantissa)


def clock_weights(weights: np.ndarray, decay: float, scale: float) -> np.ndarray:
    """Return stored weights of a batch's rows (rows,).

    scale: the scale after the batch.
    """
    if decay == 1.0:
        return weights
    return weights * decay ** np.arange(len(weights) - 1, -1, -1.0) / scale


def aged_weights(weights: np.ndarray, decay: float, age: int) -> np.ndarray:
    """Return the weights of consecutive rows now, `age` rows after the last of them."""
    return weights if decay == 1.0 else weights * decay ** (age + np.arange(len(weights) - 1, -1, -1.0))
