"""Checks that estimators use in `check_parameters`."""

import inspect
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from stream_dr.errors import InvalidParameter, did_you_mean
from stream_dr.feature_maps.draws import is_finite_number

_LARGEST = 2**31 - 1
"""Largest value of a parameter that is a number of rows, components or features.

An array of this many numbers takes 17 GB.
"""


class NamedParameters:
    """Base class whose error for an unknown keyword argument suggests a known parameter."""

    # Type checkers read the parameters from `__init__`. A visible `__new__` would hide them.
    if not TYPE_CHECKING:

        def __new__(cls, *args: Any, **params: object) -> Any:
            """Raise TypeError for a keyword argument that `__init__` does not have."""
            known = inspect.signature(cls.__init__).parameters
            for name in params.keys() - known.keys():
                meant = did_you_mean(name, known)
                raise TypeError(f"{cls.__name__}.__init__() got an unexpected keyword argument {name!r}{meant}")
            return super().__new__(cls)


class NotOffered:
    """Descriptor that hides an inherited attribute.

    Reading the attribute raises AttributeError, so `hasattr` returns False.

    why: message of the error, which says what to use instead.
    """

    def __init__(self, why: str) -> None:
        self._why = why

    def __get__(self, instance: object, owner: type) -> NoReturn:
        raise AttributeError(self._why)


def check_positive_int(name: str, value: Any, optional: bool = False, most: int = _LARGEST) -> None:
    """Raise InvalidParameter unless a value is an integer from 1 to `most`.

    name: name of the parameter, for the error message.
    optional: if true, the value None is accepted, too.
    most: largest value that is accepted.
    """
    if optional and value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= most:
        or_none = " or None" if optional else ""
        raise InvalidParameter(f"{name}={value!r}; it must be an integer ≥ 1 and at most {most}{or_none}.")


def check_number(name: str, value: Any, low: float = -np.inf, high: float = np.inf, open_low: bool = False) -> None:
    """Raise InvalidParameter unless a value is a finite number from `low` to `high`.

    name: name of the parameter, for the error message.
    open_low: if true, `low` itself is not accepted.
    """
    if not is_finite_number(value) or value > high or value < low or (open_low and value == low):
        raise InvalidParameter(
            f"{name}={value!r}; it must be a number in {'(' if open_low else '['}{low:g}, {high:g}]."
        )


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Raise InvalidParameter unless a value is one of the choices.

    name: name of the parameter, for the error message.
    """
    if value not in choices:
        meant = did_you_mean(value, choices)
        raise InvalidParameter(f"{name}={value!r}{meant}; it must be one of {', '.join(map(repr, choices))}.")
