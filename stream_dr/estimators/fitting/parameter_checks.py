"""Checks that estimators use in `check_parameters`."""

import inspect
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from stream_dr.errors import InvalidParameter, did_you_mean
from stream_dr.feature_maps.feature_map import is_finite_number

_MAX_INT_PARAMETER = 2**31 - 1
"""Largest value of a parameter that is a number of rows, components or features.

An array of this many numbers takes 17 GB.
"""


class NamedParameters:
    """Base class that suggests a name for an unknown parameter.

    The suggestion is part of the error for an unknown keyword argument.
    """

    # Type checkers read the parameters from `__init__`. A visible `__new__` would hide them.
    if not TYPE_CHECKING:

        def __new__(cls, *args: Any, **params: object) -> Any:
            """Raise TypeError for keyword arguments that `__init__` lacks."""
            known = inspect.signature(cls.__init__).parameters
            for name in params.keys() - known.keys():
                meant = did_you_mean(name, known)
                raise TypeError(f"{cls.__name__}.__init__() got an unexpected keyword argument {name!r}{meant}")
            return super().__new__(cls)


class HiddenAttribute:
    """Descriptor that hides an inherited attribute.

    Reading the attribute raises AttributeError, so `hasattr` returns False.

    error_message: message of the error, which says what to use instead.
    """

    def __init__(self, error_message: str) -> None:
        self._error_message = error_message

    def __get__(self, instance: object, owner: type) -> NoReturn:
        raise AttributeError(self._error_message)


def check_positive_int(name: str, value: Any, allow_none: bool = False, max_value: int = _MAX_INT_PARAMETER) -> None:
    """Check that a value is a positive integer.

    Raises InvalidParameter unless the value is an integer from 1 to `max_value`.

    name: name of the parameter, for the error message.
    allow_none: if true, the value None is accepted, too.
    max_value: largest value that is accepted.
    """
    if allow_none and value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= max_value:
        or_none = " or None" if allow_none else ""
        raise InvalidParameter(f"{name}={value!r}; it must be an integer ≥ 1 and at most {max_value}{or_none}.")


def check_number_in_range(
    name: str, value: Any, low: float = -np.inf, high: float = np.inf, exclude_low: bool = False
) -> None:
    """Check that a value is a number in a range.

    Raises InvalidParameter unless the value is a finite number from `low` to `high`.

    name: name of the parameter, for the error message.
    exclude_low: if true, `low` itself is not accepted.
    """
    if not is_finite_number(value) or value > high or value < low or (exclude_low and value == low):
        bracket = "(" if exclude_low else "["
        raise InvalidParameter(f"{name}={value!r}; it must be a number in {bracket}{low:g}, {high:g}].")


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Raise InvalidParameter unless a value is one of the choices.

    name: name of the parameter, for the error message.
    """
    if value not in choices:
        meant = did_you_mean(value, choices)
        raise InvalidParameter(f"{name}={value!r}{meant}; it must be one of {', '.join(map(repr, choices))}.")
