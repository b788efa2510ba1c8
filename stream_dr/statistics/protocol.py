"""Accumulators, states, and conversion of states to named arrays.

An Accumulator is mutable, and only one thread may change it. `add(block)` learns one batch. All
checks happen before the first write, so a batch that raises an error leaves the accumulator
unchanged. `freeze()` returns an immutable State, which later batches do not change.

A State is a NamedTuple. Each of its fields is one of these:

- an ndarray, int, float, str, bool or None,
- a tuple of labels,
- a nested state (another NamedTuple with fields of these types),
- a tuple of nested states of one class.

`check()` raises DamagedFile unless the arrays of the state and of its nested states fit together
(`stream_dr/checks.py`).

Additive states, which are sums over rows, also have `merge(other)`. Their accumulators have
`remove(block)`.

`pack` converts any state to named arrays and JSON, and `unpack` converts the arrays and the JSON
back to the state. `pack` and `unpack` need only the fields of the state. So all estimators share
one format of snapshots, and nothing is pickled.
"""

from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from stream_dr.aliases import JsonDict
from stream_dr.batch.block import Block
from stream_dr.batch.targets import Label
from stream_dr.checks import check_field_types
from stream_dr.errors import CannotUnlearn
from stream_dr.feature_maps.table import TableState


class Packable(Protocol):
    """Immutable NamedTuple that `pack` can convert to arrays and JSON.

    The module's docstring lists the types that its fields may have.
    """

    def check(self) -> None:
        """Raise DamagedFile unless the state's fields have valid values.

        For example, all arrays must have as many features as the state.
        """
        ...


Packed = TypeVar("Packed", bound=Packable)


class LearnedRows(Protocol):
    """Members that states and accumulators have in common."""

    @property
    def rows(self) -> int:
        """Number of rows learned."""
        ...

    @property
    def rows_skipped(self) -> int:
        """Number of rows not learned because they had no target."""
        ...

    @property
    def n_features(self) -> int:
        """Number of features so far, 0 before the first batch."""
        ...

    @property
    def target_kind(self) -> str | None:
        """Kind of targets. None before the first target.

        The kind is "class", "multilabel" or "continuous".
        """
        ...

    @property
    def labels(self) -> tuple[Label, ...]:
        """Distinct labels in order of first appearance."""
        ...


class State(LearnedRows, Packable, Protocol):
    """Everything that an estimator remembers of its learned rows."""


class AdditiveState(State, Protocol):
    """State of sums over rows, which can be merged."""

    def merge(self, other: Any) -> Self:
        """Return the state of all rows of `self` and `other`.

        Raises CannotMerge.
        """
        ...


class Accumulator(LearnedRows, Protocol):
    """Mutable statistics of a stream, to which batches are added.

    `freeze` returns the statistics as a State. This protocol lists the members that other packages
    use.
    """

    @property
    def remaining_labels(self) -> tuple[Label, ...]:
        """Labels that rows still have after all unlearning."""
        ...

    @property
    def table_names(self) -> tuple[str, ...]:
        """Names of the table's columns, empty unless the feature map reads tables."""
        ...

    @property
    def scatter(self) -> str:
        """Stored part of the scatter matrix of the features.

        The value is "exact" (all pairs of features), "diagonal", "none" or "auto" (not yet
        decided). It is "" for accumulators without a scatter matrix.
        """
        ...

    @property
    def folds(self) -> int:
        """Number of folds into which rows are divided for cross-validation, or 0."""
        ...

    @property
    def label_rows(self) -> np.ndarray | None:
        """Array (labels,) int64, the number of rows with each label.

        None if the accumulator does not count rows by label.
        """
        ...

    @property
    def table(self) -> TableState | None:
        """Running statistics of a table's columns.

        The value is None if the feature map uses no such statistics.
        """
        ...

    @property
    def first_batch_parameters(self) -> JsonDict:
        """Parameters computed from the first batch, by name."""
        ...

    @property
    def inner(self) -> "Accumulator":
        """Accumulator of the rows as the estimator learns them.

        With a feature map, this accumulator learns the rows that the map returns. Without a
        feature map, it is the accumulator itself.
        """
        ...

    def add(self, block: Block) -> None:
        """Learn one batch.

        The targets of the batch must be a Targets object or None.
        """
        ...

    def remove(self, block: Block) -> None:
        """Remove a batch that was learned before.

        Raises CannotUnlearn if the batch has more rows or weight than were learned. Also raises
        CannotUnlearn if the state does not consist of sums.
        """
        ...

    def freeze(self) -> State:
        """Return the state so far.

        Later batches do not change the returned state.
        """
        ...


class AccumulatorBase:
    """Base class of accumulators, with defaults for optional properties."""

    labels: tuple[Label, ...]
    table_names: tuple[str, ...] = ()
    scatter: str = ""
    folds: int = 0
    table: TableState | None = None

    @property
    def label_rows(self) -> np.ndarray | None:
        """None, because rows are not counted by label."""
        return None

    @property
    def first_batch_parameters(self) -> JsonDict:
        """Empty, because no parameter is computed from the first batch."""
        return {}

    @property
    def inner(self) -> Self:
        """The accumulator itself, because there is no feature map."""
        return self

    @property
    def remaining_labels(self) -> tuple[Label, ...]:
        """Labels of the remaining rows, in order of first appearance.

        A label that only unlearned rows had is not included. If rows are not counted by label, all
        labels are included.
        """
        labels = self.labels
        counts = self.label_rows
        if counts is None:
            return labels
        # If another thread learns a batch now, new labels may not have a number of rows yet.
        return tuple(label for label, rows in zip(labels, counts, strict=False) if rows)

    def remove(self, block: Block) -> None:
        """Raise CannotUnlearn, because the state does not consist of sums."""
        raise CannotUnlearn(
            "a sequential recurrence cannot take rows out again. Rebuild from the log without those rows."
        )


def pack(state: Packable) -> tuple[dict[str, np.ndarray], JsonDict]:
    """Convert a state to named arrays and a JSON description.

    The arrays are C-ordered. `unpack` converts arrays and description back to an equal state.
    """
    arrays: dict[str, np.ndarray] = {}
    return arrays, _describe_and_collect_arrays(state, "", arrays)


def unpack(state_class: type[Packed], arrays: dict[str, np.ndarray], description: JsonDict) -> Packed:
    """Return the state from the arrays and description that `pack` returned.

    Raises DamagedFile if the arrays belong to another state. A description that was not returned
    by `pack` may raise any error.

    state_class: class of the state. (The description names the classes of nested states.)
    """
    state: Packed = _restore_state(state_class, arrays, description)
    state.check()
    return state


def _describe_and_collect_arrays(state: Any, name_prefix: str, arrays: dict[str, np.ndarray]) -> JsonDict:
    """Return a state's description, and add its arrays to `arrays`.

    name_prefix: start of the names of the state's arrays. For a nested state, the path of its
        field.
    """
    fields: JsonDict = {}
    for name, value in zip(state._fields, state, strict=True):
        key = f"{name_prefix}{name}"

        if isinstance(value, np.ndarray):
            arrays[key] = np.ascontiguousarray(value)
            fields[name] = {"array": key, "shape": list(value.shape)}
        elif hasattr(value, "_fields"):
            nested = _describe_and_collect_arrays(value, f"{key}.", arrays)
            fields[name] = {"state": nested, "class": type(value).__name__}
        elif isinstance(value, tuple) and value and all(hasattr(part, "_fields") for part in value):
            parts = [_describe_and_collect_arrays(part, f"{key}.{i}.", arrays) for i, part in enumerate(value)]
            fields[name] = {"states": parts, "class": type(value[0]).__name__}
        elif isinstance(value, tuple):
            fields[name] = {"tuple": _to_json_value(value)}
        else:
            fields[name] = value.item() if isinstance(value, np.generic) else value
    return fields


def _to_json_value(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_to_json_value(v) for v in value]
    return value.item() if isinstance(value, np.generic) else value


def _lists_to_tuples(value: Any) -> Any:
    return tuple(_lists_to_tuples(v) for v in value) if isinstance(value, list) else value


def _restore_state(state_class: Any, arrays: dict[str, np.ndarray], description: JsonDict) -> Any:
    """Return the state that `_describe_and_collect_arrays` described.

    state_class: class of the state.
    arrays: arrays that the function collected.
    description: description that the function returned.
    """
    values: dict[str, Any] = {}
    for name, value in description.items():
        if not isinstance(value, dict):
            values[name] = value
        elif "array" in value:
            values[name] = arrays[value["array"]].reshape(value["shape"])
        elif "state" in value:
            values[name] = _restore_state(STATES[value["class"]], arrays, value["state"])
        elif "states" in value:
            kind_of = STATES[value["class"]]
            values[name] = tuple(_restore_state(kind_of, arrays, v) for v in value["states"])
        else:
            values[name] = _lists_to_tuples(value["tuple"])

    # A damaged file may have values of other types than the class declares.
    restored = state_class(**values)
    check_field_types(restored)
    return restored


STATES: dict[str, Any] = {}
"""Classes of nested states, by name. Nested states are fields of other states."""


def register_nested_state(state_class: type) -> type:
    """Register a class whose states may be nested in others.

    A nested state is a field of another state. This function is used as a class decorator.
    """
    STATES[state_class.__name__] = state_class
    return state_class


class Absent(NamedTuple):
    """Value of a state's field for an optional part that is absent."""


register_nested_state(Absent)
