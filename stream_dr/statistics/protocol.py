"""What an accumulator and a state are, and how a state becomes named arrays and back.

An Accumulator is mutable and has one owner: `add(block)` learns one batch, `freeze()` hands out an immutable State that
later adds do not change. All checks happen before the first write, so a refused batch leaves it as it was.

A State is a NamedTuple whose fields are ndarrays, int, float, str, bool, None, tuples of labels, other such NamedTuples, or
tuples of those of one class. It has `check()`, which raises DamagedFile unless its arrays fit each other (checks.py); those
of a state that stands inside another are checked by that one.
Additive states also have `merge(other) → State` and, through their accumulator, `remove(block)`.

Why this way: `pack` and `unpack` need no knowledge of any state, so a snapshot's format never changes with an estimator,
and nothing is ever pickled.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np

from stream_dr.checks import typed
from stream_dr.rows.block import Block
from stream_dr.targets.label_codes import Label

State = Any
"""Any NamedTuple as described above."""


class Accumulator(Protocol):
    """The mutable side of a State.

    rows: rows learned. rows_skipped: rows left out because they had no target. n_features: width so far (0 before the
    first batch). target_kind: kind of targets decided by the first batch that had any, or None. labels: vocabulary in
    order of first appearance.
    """

    rows: int
    rows_skipped: int
    n_features: int
    target_kind: str | None
    labels: tuple[Label, ...]

    def add(self, block: Block) -> None:
        """Learn one batch whose targets, if any, are a Targets value."""
        ...

    def freeze(self) -> State:
        """The State so far; later adds do not change it."""
        ...


class AdditiveAccumulator(Accumulator, Protocol):
    """An accumulator whose state is a sum: batches can also be taken out again."""

    def remove(self, block: Block) -> None:
        """Take out a batch learned before; raises CannotUnlearn when more would go than was learned."""
        ...


def pack(state: State) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """A State as named C-ordered arrays and a JSON-able description; `unpack` inverts it exactly."""
    arrays: dict[str, np.ndarray] = {}
    return arrays, _describe(state, "", arrays)


def unpack(kind: type, arrays: dict[str, np.ndarray], description: dict[str, Any]) -> State:
    """The State of class `kind` (and, nested, the classes in its annotations) from what `pack` gave.

    Raises DamagedFile for arrays that are no such state's, and whatever a description leads to that `pack` never gives.
    """
    state = _restore(kind, "", arrays, description)
    state.check()
    return state


def _describe(state: Any, prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in zip(state._fields, state, strict=True):
        key = f"{prefix}{name}"
        if isinstance(value, np.ndarray):
            arrays[key] = np.ascontiguousarray(value)
            fields[name] = {"array": key, "shape": list(value.shape)}
        elif hasattr(value, "_fields"):
            fields[name] = {"state": _describe(value, f"{key}.", arrays), "class": type(value).__name__}
        elif isinstance(value, tuple) and value and all(hasattr(part, "_fields") for part in value):
            parts = [_describe(part, f"{key}.{i}.", arrays) for i, part in enumerate(value)]
            fields[name] = {"states": parts, "class": type(value[0]).__name__}
        elif isinstance(value, tuple):
            fields[name] = {"tuple": _plain(value)}
        else:
            fields[name] = value.item() if isinstance(value, np.generic) else value
    return fields


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    return value.item() if isinstance(value, np.generic) else value


def _nested(value: Any) -> Any:
    return tuple(_nested(v) for v in value) if isinstance(value, list) else value


def _restore(kind: Any, prefix: str, arrays: dict[str, np.ndarray], fields: dict[str, Any]) -> Any:
    values: dict[str, Any] = {}
    for name, value in fields.items():
        if name not in kind._fields:
            continue  # an earlier version kept it
        if not isinstance(value, dict):
            values[name] = value
        elif "array" in value:
            values[name] = arrays[value["array"]].reshape(value["shape"])
        elif "state" in value:
            values[name] = _restore(STATES[value["class"]], f"{prefix}{name}.", arrays, value["state"])
        elif "states" in value:
            kind_of = STATES[value["class"]]
            values[name] = tuple(
                _restore(kind_of, f"{prefix}{name}.{i}.", arrays, v) for i, v in enumerate(value["states"])
            )
        else:
            values[name] = _nested(value["tuple"])
    restored = kind(**values)
    typed(restored)
    return restored


STATES: dict[str, Any] = {}
"""State classes that may stand inside another state, by name."""


def nested_state(kind: type) -> type:
    """Class decorator: makes a State restorable where it stands inside another."""
    STATES[kind.__name__] = kind
    return kind


class Absent(NamedTuple):
    """A part that this state does not keep."""


nested_state(Absent)
