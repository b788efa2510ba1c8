"""Convert labels or numbers of a JSON object to Targets.

Labels are under the key "labels", and numbers to regress on are under the key "target". A JSON
number may be a label or a measurement, so the key decides.

Cost: O(labels) in Python objects.
"""

from itertools import chain
from typing import Any

import numpy as np

from stream_dr.errors import InvalidRows, InvalidTargets, SchemaMismatch
from stream_dr.targets.targets import Targets, class_targets, continuous_targets, multilabel_targets

ParsedJson = Any
"""A parsed JSON value."""

JsonObject = dict[str, ParsedJson]
"""A parsed JSON object."""

NUMBER_TYPES = {int, float}
"""Python types of a parsed JSON number. bool is excluded."""


def targets_from_json(parsed_request: JsonObject, n_rows: int) -> Targets | None:
    """Return the Targets of a request, or None if absent.

    parsed_request: the parsed JSON object of a request.
    n_rows: number of rows in the request, which must be the number of targets.

    Raises InvalidTargets or SchemaMismatch.
    """
    key = "labels" if parsed_request.get("labels") is not None else "target"
    entries = parsed_request.get(key)
    if entries is None:
        return None

    if key == "labels" and parsed_request.get("target") is not None:
        raise SchemaMismatch("both labels and target were given; send one of them.", column="target")
    if not isinstance(entries, list) or len(entries) != n_rows:
        n = len(entries) if isinstance(entries, list) else json_type_in_words(entries)
        raise InvalidTargets(f'{n_rows} rows but {n} under "{key}"; send one entry a row.')

    if key == "labels":
        return _targets_from_labels(entries)
    return _targets_from_numbers(entries)


def _targets_from_labels(row_labels: list[ParsedJson]) -> Targets:
    """Return Targets for parsed JSON labels.

    Each row has one label or a list of labels.

    row_labels: value of the request's key "labels". An entry of None means a row without target.

    Raises InvalidTargets for labels of different types.
    """
    types = {type(v) for v in row_labels if v is not None}
    if list not in types:
        _refuse_unlike_label_types(row_labels)
        return class_targets(row_labels)

    if types != {list}:
        raise InvalidTargets("some rows have a list of labels and some a single label; send one form.")
    _refuse_unlike_label_types(list(chain.from_iterable(v for v in row_labels if v is not None)), None)
    return multilabel_targets(row_labels)


def _refuse_unlike_label_types(labels: list[ParsedJson], absent_label_type: type | None = type(None)) -> None:
    """Raise InvalidTargets unless all labels have the same type.

    The type is string, bool or integer. A float without a fraction counts as an integer.

    absent_label_type: type of an entry that stands for a row without target. None if every entry
        must be a label.
    """
    # Types are compared and not values, because True, 1 and 1.0 are equal in Python.
    types = {type(v) for v in labels} - {absent_label_type}
    if types <= NUMBER_TYPES and all(type(v) is int or v.is_integer() for v in labels if v is not None):
        return

    if len(types) > 1 or not types <= {str, bool}:
        names = ", ".join(sorted(t.__name__ for t in types if t is not None))
        raise InvalidTargets(
            f'labels are of type {names}; they must be all strings, all integers or all bools. Numbers go under "target".'
        )


def _targets_from_numbers(row_targets: list[ParsedJson]) -> Targets:
    """Return Targets for parsed JSON numbers.

    Each row has one number or a list of numbers.

    row_targets: value of the request's key "target". An entry of None means a row without target.

    Raises InvalidTargets for rows of different lengths or an entry that is no number.
    """
    first = next((v for v in row_targets if v is not None), None)
    width = len(first) if isinstance(first, list) else 1

    # Make a table of numbers. A row without target gets zeros, and is marked in `present` below.
    table = [v if isinstance(v, list) else [v] for v in row_targets]
    table = [[0.0] * width if v == [None] else v for v in table]
    odd = next((i for i, v in enumerate(table) if len(v) != width or not set(map(type, v)) <= NUMBER_TYPES), None)
    if odd is not None or width == 0:
        raise InvalidTargets(f"the target of row {odd or 0} is not {width} number(s) as the others are.", row=odd or 0)

    targets = continuous_targets(
        float64_array_refusing_overflow(list(chain.from_iterable(table))).reshape(len(row_targets), width)
    )
    present = np.array([v is not None for v in row_targets], dtype=bool)
    if present.all():
        return targets
    return targets._replace(present=present)


def float64_array_refusing_overflow(numbers: list[ParsedJson]) -> np.ndarray:
    """Return Python numbers as a float64 array.

    Raises InvalidRows if an integer is too large for a double.
    """
    try:
        return np.array(numbers, dtype=np.float64)
    except OverflowError as e:
        raise InvalidRows("a number is too large for a double; values are at most 1e100 in size.") from e


def json_type_in_words(value: ParsedJson) -> str:
    """Return the JSON type of a value in words."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
