"""draws: random numbers keyed by (seed, purpose, index), so a draw never depends on what was drawn before it.

Philox is a counter-based generator: block i of its output is a function of the key and of i alone. Index i (a row's
number, a feature's index) owns its own blocks, so any range can be drawn at once, in any order, and again.

Why this way: a state that depends on nothing but its rows and a seed can be replayed, batched otherwise and widened
later.
"""

import math
from typing import Any

import numpy as np
from scipy.special import ndtri

from stream_dr.errors import InvalidParameter


def uniforms(seed: int, purpose: int, first: int, count: int, each: int = 1) -> np.ndarray:
    """(count, each) float64 in (0, 1): row i belongs to index first + i.

    seed: the user's. purpose: what the numbers are for, so that two uses of one seed do not share them.
    """
    blocks = -(-each // 4)
    philox = np.random.Philox(key=(seed % 2**64) | (purpose << 64), counter=first * blocks)
    raw = philox.random_raw(count * blocks * 4).reshape(count, blocks * 4)[:, :each]
    return ((raw >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def normals(seed: int, purpose: int, first: int, count: int, each: int = 1) -> np.ndarray:
    """(count, each) standard normal float64, row i belonging to index first + i."""
    return ndtri(uniforms(seed, purpose, first, count, each))


def cauchys(seed: int, purpose: int, first: int, count: int, each: int = 1) -> np.ndarray:
    """(count, each) standard Cauchy float64, row i belonging to index first + i."""
    return np.tan(np.pi * (uniforms(seed, purpose, first, count, each) - 0.5))


def finite_number(value: Any) -> bool:
    """Whether value is a number, no bool, and finite as a float64."""
    try:
        real = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
        return real and math.isfinite(value)
    except OverflowError:  # an integer past the largest float
        return False


def check_seed(seed: Any) -> None:
    """Raise InvalidParameter unless seed is None (which is 0: nothing here depends on the clock) or an integer from 0 to
    2⁶³ − 1."""
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**63):
        raise InvalidParameter(
            f"random_state={seed!r}; it must be an integer ≥ 0 and below 2**63, or None, which stands for 0."
        )
