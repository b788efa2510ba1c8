"""Parameters of estimators: their checks, their types and their descriptions.

A class describes its own parameters and attributes in numpydoc's sections Parameters and
Attributes. `help`, tooltips and the reference read a class's docstring, which therefore lists
inherited ones, too. If a class and its base describe the same name, the description in the class
is used.
"""

import inspect
import re
from typing import TYPE_CHECKING, Any, NoReturn, get_type_hints

import numpy as np

from stream_dr.errors import InvalidParameter, did_you_mean
from stream_dr.feature_maps.feature_map import is_finite_number

SECTION = re.compile(r"^(Parameters|Attributes)\n-+\n(.*?)(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)
ENTRY = re.compile(r"^(\w+) : .*(?:\n    .*)*", re.MULTILINE)
NOTES = "Notes\n-----\n"

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
            """Raise TypeError for unknown keyword arguments, with a suggested name."""
            # Python's own TypeError would not suggest a parameter of similar name.
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


def parameter_types(estimator_class: type) -> list[tuple[str, Any, Any]]:
    """Return name, type and default of an estimator class's parameters.

    The parameters come in the order of the signature. A parameter without annotation has the type
    Any.

    >>> import stream_dr
    >>> stream_dr.parameter_types(stream_dr.KNearest)[0]
    ('n_neighbors', <class 'int'>, 1)
    """
    hints = get_type_hints(estimator_class.__init__)  # type: ignore[misc]
    parameters = inspect.signature(estimator_class).parameters
    return [(name, hints.get(name, Any), parameter.default) for name, parameter in parameters.items()]


def collect_documented_entries(cls: type) -> dict[str, dict[str, str]]:
    """Return the descriptions of a class's parameters and attributes.

    The descriptions are read from the docstrings of the class and its base classes. The result has
    the text of each description, first by section ("Parameters" or "Attributes"), then by name.
    """
    sections: dict[str, dict[str, str]] = {"Parameters": {}, "Attributes": {}}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("stream_dr."):
            for section, entries in SECTION.findall(_own_text(base)):
                sections[section] |= {entry[1]: entry[0] for entry in ENTRY.finditer(entries)}
    return sections


def docstring_with_inherited(cls: type) -> str:
    """Return the class's docstring, with inherited parameters and attributes added.

    The order of the sections is purpose and example, Parameters, Attributes, Notes.
    """
    # Store the docstring without the inherited descriptions. Later calls for subclasses read it.
    own_text = _own_text(cls)
    cls._stored_own_text = own_text  # type: ignore[attr-defined]
    # SECTION matches the sections Parameters and Attributes, which are written again below.
    # NOTES is the heading of the section Notes, which stays at the end.
    purpose, heading, notes = SECTION.sub("", own_text).partition(NOTES)
    # `name` is the heading of a section, and `entries` its descriptions by name.
    sections = []
    for name, entries in collect_documented_entries(cls).items():
        if entries:
            sections.append("\n".join([name, "-" * len(name), *entries.values()]))
    parts = [re.sub(r"\n{3,}", "\n\n", purpose).strip(), *sections, heading + notes]
    return "\n\n".join(part for part in parts if part)


def _own_text(cls: type) -> str:
    """Return the class's docstring without inherited parameters and attributes."""
    return vars(cls).get("_stored_own_text") or inspect.cleandoc(vars(cls).get("__doc__") or "")
