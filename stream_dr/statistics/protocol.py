"""Accumulators and states, and how a state becomes named arrays and back.

An Accumulator is mutable and has one owner. `add(block)` learns one batch. `freeze()` returns an
immutable State that later adds do not change. All checks happen before the first write, so a batch
that raises an error leaves the accumulator unchanged.

A State is a NamedTuple. Its fields are ndarrays, int, float, str, bool, None, tuples of labels,
other NamedTuples of this kind, or tuples of NamedTuples of one class. `check()` raises DamagedFile
unless the arrays fit each other (checks.py). A state that contains another state calls the other's
check too. Additive states also have `merge(other) → State` and, through their accumulator,
`remove(block)`.

`pack` and `unpack` work for any state by its fields alone. So a snapshot's format does not change
with an estimator, and nothing is pickled.
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

    The module's docstring lists the types that its fields may have.
    """

    def check(self) -> None:
        """Raise DamagedFile unless the arrays fit each other."""
        ...


Packed = TypeVar("Packed", bound=Packable)


class State(Packable, Protocol):
    """Everything that an estimator remembers of a stream."""

    @property
    def rows(self) -> int:
        """Number of rows learned."""
        ...

    @property
    def rows_skipped(self) -> int:
        """Number of rows that were not learned because they had no target."""
        ...

    @property
    def n_features(self) -> int:
        """Number of features so far, 0 before the first batch."""
        ...

    @property
    def target_kind(self) -> str | None:
        """Kind of targets. None before the first target."""
        ...

    @property
    def labels(self) -> tuple[Label, ...]:
        """Distinct labels in order of first appearance."""
        ...


class AdditiveState(State, Protocol):
    """State that consists of sums over rows.

    The states of two streams can therefore be merged.
    """

    def merge(self, other: Any) -> Self:
        """Return the state of the rows of `self` and `other`. Raises CannotMerge."""
        ...


class Accumulator(Protocol):
    """Mutable statistics of a stream, to which batches are added.

    These are the methods that other packages use. `freeze` returns the statistics as a State.
    """

    @property
    def rows(self) -> int:
        """Number of rows learned."""
        ...

    @property
    def rows_skipped(self) -> int:
        """Number of rows that were not learned because they had no target."""
        ...

    @property
    def n_features(self) -> int:
        """Number of features so far, 0 before the first batch."""
        ...

    @property
    def target_kind(self) -> str | None:
        """Kind of targets, decided by the first batch that had targets, or None."""
        ...

    @property
    def labels(self) -> tuple[Label, ...]:
        """Distinct labels in order of first appearance."""
        ...

    @property
    def labels_left(self) -> tuple[Label, ...]:
        """Labels of at least one row that was not unlearned."""
        ...

    @property
    def table_names(self) -> tuple[str, ...]:
        """Names of a table's columns. Empty unless the feature map is a map of tables."""
        ...

    @property
    def scatter(self) -> str:
        """Part of the scatter matrix of the features that is stored.

        The value is "auto" (not decided yet), "exact", "diagonal" or "none". Accumulators without
        a scatter matrix have "".
        """
        ...

    @property
    def label_rows(self) -> np.ndarray | None:
        """Number of rows (labels,) int64 with each label.

        None if the accumulator does not count rows by label.
        """
        ...

    @property
    def table(self) -> TableState | None:
        """Running statistics of a table's columns. None if the feature map needs no statistics."""
        ...

    @property
    def decided(self) -> JsonDict:
        """Parameters whose values were computed from the first batch, by name."""
        ...

    @property
    def inner(self) -> "Accumulator":
        """Accumulator of the rows as the estimator learns them.

        If there is a feature map, this is the accumulator of the mapped rows.
        """
        ...

    def add(self, block: Block) -> None:
        """Learn one batch. Its targets must be a Targets value or None."""
        ...

    def remove(self, block: Block) -> None:
        """Remove a batch learned before.

        Raises CannotUnlearn if more would be removed than was learned, or if the state does not
        consist of sums.
        """
        ...

    def freeze(self) -> State:
        """Return the state so far, which later batches do not change."""
        ...


class AccumulatorBase:
    """Defaults for properties that only some accumulators have."""

    labels: tuple[Label, ...]
    table_names: tuple[str, ...] = ()
    scatter: str = ""
    table: TableState | None = None

    @property
    def label_rows(self) -> np.ndarray | None:
        """None, because rows are not counted by label."""
        return None

    @property
    def decided(self) -> JsonDict:
        """Empty, because no parameter is computed from the first batch."""
        return {}

    @property
    def inner(self) -> Self:
        """The accumulator itself, since there is no feature map."""
        return self

    @property
    def labels_left(self) -> tuple[Label, ...]:
        """All labels, since no rows can be unlearned."""
        return self.labels

    def remove(self, block: Block) -> None:
        """Raise CannotUnlearn, since the state does not consist of sums."""
        raise CannotUnlearn(
            "a sequential recurrence cannot take rows out again. Rebuild from the log without those rows."
        )


def pack(state: Packable) -> tuple[dict[str, np.ndarray], JsonDict]:
    """Return a state as named C-ordered arrays and a JSON-able description.

    `unpack` restores exactly the same state.
    """
    arrays: dict[str, np.ndarray] = {}
    return arrays, _describe(state, "", arrays)


def unpack(kind: type[Packed], arrays: dict[str, np.ndarray], description: JsonDict) -> Packed:
    """Return the state that `pack` turned into arrays and a description.

    The description names the classes of nested states. Raises DamagedFile if the arrays belong to
    another state. A description that `pack` never returns may raise any error.

    kind: class of the state.
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
            # The field is unknown because an earlier version of the class stored it.
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
"""Classes of states that may be a field of another state, by name."""


def nested_state(kind: type) -> type:
    """Register a class of states that may be a field of another state.

    This function is a class decorator.
    """
    STATES[kind.__name__] = kind
    return kind


class Absent(NamedTuple):
    """Placeholder for a part that a state does not store."""


nested_state(Absent)
