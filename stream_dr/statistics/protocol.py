"""Accumulators and states, and how a state becomes named arrays and back.

An Accumulator is mutable and has one owner: `add(block)` learns one batch, `freeze()` returns an
immutable State that later adds do not change. All checks happen before the first write, so a
refused batch leaves it unchanged.

A State is a NamedTuple whose fields are ndarrays, int, float, str, bool, None, tuples of labels,
other such NamedTuples, or tuples of those of one class. Its `check()` raises DamagedFile unless
its arrays fit each other (checks.py). A state inside another is checked by that one. Additive
states also have `merge(other) → State` and, through their accumulator, `remove(block)`.

`pack` and `unpack` need no knowledge of any state, so a snapshot's format never changes with an
estimator, and nothing is pickled.
"""

from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from stream_dr.aliases import JsonDict
from stream_dr.checks import check_field_types
from stream_dr.errors import CannotUnlearn
from stream_dr.feature_maps.table import TableState
from stream_dr.rows.block import Block
from stream_dr.targets.label_codes import Label


class Packable(Protocol):
    """Immutable NamedTuple that `pack` takes.

    The module's docstring lists its fields.
    """

    def check(self) -> None:
        """Raise DamagedFile unless the arrays fit each other."""
        ...


Packed = TypeVar("Packed", bound=Packable)


class State(Packable, Protocol):
    """All that an estimator remembers of a stream."""

    @property
    def rows(self) -> int:
        """Number of rows learned."""
        ...

    @property
    def rows_skipped(self) -> int:
        """Number of rows left out because they had no target."""
        ...

    @property
    def n_features(self) -> int:
        """Width so far, 0 before the first batch."""
        ...

    @property
    def target_kind(self) -> str | None:
        """Kind of targets, or None before there are any."""
        ...

    @property
    def labels(self) -> tuple[Label, ...]:
        """Vocabulary in order of first appearance."""
        ...


class AdditiveState(State, Protocol):
    """State that is a sum.

    So the states of two streams can be merged.
    """

    def merge(self, other: Any) -> Self:
        """Return the state of both streams. Raises CannotMerge."""
        ...


class Accumulator(Protocol):
    """The mutable side of a State, as others read it."""

    @property
    def rows(self) -> int:
        """Number of rows learned."""
        ...

    @property
    def rows_skipped(self) -> int:
        """Number of rows left out because they had no target."""
        ...

    @property
    def n_features(self) -> int:
        """Width so far, 0 before the first batch."""
        ...

    @property
    def target_kind(self) -> str | None:
        """Kind of targets, decided by the first batch that had any, or None."""
        ...

    @property
    def labels(self) -> tuple[Label, ...]:
        """Vocabulary in order of first appearance."""
        ...

    @property
    def labels_left(self) -> tuple[Label, ...]:
        """Labels with a row that was not unlearned."""
        ...

    @property
    def table_names(self) -> tuple[str, ...]:
        """Names of a table's columns, empty without a map of tables."""
        ...

    @property
    def scatter(self) -> str:
        """Part of the scatter matrix Cxx that is stored.

        "auto", "exact", "diagonal", "none", or "" for accumulators without a scatter.
        """
        ...

    @property
    def label_rows(self) -> np.ndarray | None:
        """Number of rows (labels,) int64 of each label.

        None if they are not counted.
        """
        ...

    @property
    def table(self) -> TableState | None:
        """Statistics of a table's columns, or None without a map of tables."""
        ...

    @property
    def decided(self) -> JsonDict:
        """Parameters that the first batch has decided."""
        ...

    @property
    def inner(self) -> "Accumulator":
        """Accumulator of the rows that are learned from.

        They are mapped ones if there is a map.
        """
        ...

    def add(self, block: Block) -> None:
        """Learn one batch, whose targets are a Targets value if there are any."""
        ...

    def remove(self, block: Block) -> None:
        """Remove a batch learned before.

        Raises CannotUnlearn if more would be removed than was learned, or if the state is no sum.
        """
        ...

    def freeze(self) -> State:
        """Return the State so far. Later adds do not change it."""
        ...


class AccumulatorBase:
    """Defaults of what only some accumulators have."""

    labels: tuple[Label, ...]
    table_names: tuple[str, ...] = ()
    scatter: str = ""
    table: TableState | None = None

    @property
    def label_rows(self) -> np.ndarray | None:
        """Number of rows of each label. None, since they are not counted."""
        return None

    @property
    def decided(self) -> JsonDict:
        """Parameters that the first batch has decided. Empty."""
        return {}

    @property
    def inner(self) -> Self:
        """The accumulator itself, since there is no map."""
        return self

    @property
    def labels_left(self) -> tuple[Label, ...]:
        """Labels with a row that was not unlearned."""
        return self.labels

    def remove(self, block: Block) -> None:
        """Raise CannotUnlearn, since the state is no sum."""
        raise CannotUnlearn(
            "a sequential recurrence cannot take rows out again. Rebuild from the log without those rows."
        )


def pack(state: Packable) -> tuple[dict[str, np.ndarray], JsonDict]:
    """Return a State as named C-ordered arrays and a JSON-able description.

    `unpack` inverts it exactly.
    """
    arrays: dict[str, np.ndarray] = {}
    return arrays, _describe(state, "", arrays)


def unpack(kind: type[Packed], arrays: dict[str, np.ndarray], description: JsonDict) -> Packed:
    """Return the State of class `kind` from the arrays and description of `pack`.

    Classes of nested states are those named in the description. Raises DamagedFile for arrays of
    another state, and any error that a description may cause that `pack` never returns.
    """
    state: Packed = _restore(kind, "", arrays, description)
    state.check()
    return state


def _describe(state: Any, prefix: str, arrays: dict[str, np.ndarray]) -> JsonDict:
    fields: JsonDict = {}
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


def _restore(kind: Any, prefix: str, arrays: dict[str, np.ndarray], fields: JsonDict) -> Any:
    values: dict[str, Any] = {}
    for name, value in fields.items():
        if name not in kind._fields:
            # An earlier version stored it.
            continue
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
    check_field_types(restored)
    return restored


STATES: dict[str, Any] = {}
"""Classes of states that may stand inside another state, by name."""


def nested_state(kind: type) -> type:
    """Make a State restorable where it stands inside another. Class decorator."""
    STATES[kind.__name__] = kind
    return kind


class Absent(NamedTuple):
    """Placeholder of a part that a state does not keep."""


nested_state(Absent)
