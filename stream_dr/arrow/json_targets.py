"""json_targets: what stands under "labels" or "target" in a JSON object → Targets.

Cost: O(labels) in Python objects.

Why this way: JSON's numbers do not say whether they are classes or measurements; the key does. Types are compared as JSON
gave them, because Python takes True, 1 and 1.0 for one label.
"""

from itertools import chain
from typing import Any

import numpy as np

from stream_dr.errors import InvalidRows, InvalidTargets, SchemaMismatch
from stream_dr.targets.targets import Targets, class_targets, continuous_targets, multilabel_targets

NUMBER = {int, float}


def targets_from_json(obj: dict[str, Any], rows: int) -> Targets | None:
    """The Targets of an object's "labels" or "target", or None. Raises InvalidTargets or SchemaMismatch."""
    key = "labels" if obj.get("labels") is not None else "target"
    given = obj.get(key)
    if given is None:
        return None
    if key == "labels" and obj.get("target") is not None:
        raise SchemaMismatch("both labels and target were given; send one of them.", column="target")
    if not isinstance(given, list) or len(given) != rows:
        n = len(given) if isinstance(given, list) else name_of(given)
        raise InvalidTargets(f'{rows} rows but {n} under "{key}"; send one entry a row.')
    return _labels(given) if key == "labels" else _numbers(given)


def _labels(given: list[Any]) -> Targets:
    kinds = {type(v) for v in given if v is not None}
    if list not in kinds:
        _check_labels(given)
        return class_targets(given)
    if kinds != {list}:
        raise InvalidTargets("some rows have a list of labels and some a single label; send one form.")
    _check_labels(list(chain.from_iterable(v for v in given if v is not None)), None)
    return multilabel_targets(given)


def _check_labels(labels: list[Any], absent: Any = type(None)) -> None:
    kinds = {type(v) for v in labels} - {absent}
    if kinds <= {int, float} and all(type(v) is int or v.is_integer() for v in labels if v is not None):
        return
    if len(kinds) > 1 or not kinds <= {str, bool}:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise InvalidTargets(
            f'labels are of type {names}; they must be all strings, all integers or all bools. Numbers go under "target".'
        )


def _numbers(given: list[Any]) -> Targets:
    first = next((v for v in given if v is not None), None)
    width = len(first) if isinstance(first, list) else 1
    table = [v if isinstance(v, list) else [v] for v in given]
    table = [[0.0] * width if v == [None] else v for v in table]
    odd = next((i for i, v in enumerate(table) if len(v) != width or not set(map(type, v)) <= NUMBER), None)
    if odd is not None or width == 0:
        raise InvalidTargets(f"the target of row {odd or 0} is not {width} number(s) as the others are.", row=odd or 0)
    targets = continuous_targets(number_array(list(chain.from_iterable(table))).reshape(len(given), width))
    present = np.array([v is not None for v in given], dtype=bool)
    return targets if present.all() else targets._replace(present=present)


def number_array(numbers: list[Any]) -> np.ndarray:
    """Numbers as float64; raises InvalidRows for one past the largest double."""
    try:
        return np.array(numbers, dtype=np.float64)
    except OverflowError as e:
        raise InvalidRows("a number is too large for a double; values are at most 1e100 in size.") from e


def name_of(value: Any) -> str:
    """What JSON calls a value."""
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")
