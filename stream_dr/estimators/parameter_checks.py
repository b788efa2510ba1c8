"""parameter_checks: the checks that estimators' `check_parameters` are made of.

Why this way: one error class and one form of words for every parameter that is outside its range.
"""

from typing import Any

import numpy as np

from stream_dr.errors import InvalidParameter


def check_positive_int(name: str, value: Any, optional: bool = False) -> None:
    """Raise InvalidParameter unless value is an integer ≥ 1 (or None, where optional)."""
    if optional and value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InvalidParameter(f"{name}={value!r}; it must be an integer ≥ 1{' or None' if optional else ''}.")


def check_number(name: str, value: Any, low: float = -np.inf, high: float = np.inf, open_low: bool = False) -> None:
    """Raise InvalidParameter unless value is a finite number in [low, high] (or (low, high] where open_low)."""
    good = isinstance(value, int | float | np.number) and not isinstance(value, bool) and np.isfinite(value)
    if not good or value > high or value < low or (open_low and value == low):
        raise InvalidParameter(
            f"{name}={value!r}; it must be a number in {'(' if open_low else '['}{low:g}, {high:g}]."
        )


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Raise InvalidParameter unless value is one of choices."""
    if value not in choices:
        raise InvalidParameter(f"{name}={value!r}; it must be one of {', '.join(map(repr, choices))}.")
