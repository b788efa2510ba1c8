"""mapping: how an estimator with a parameter `feature_map` learns and solves through the map.

The estimator writes its accumulator and solver as if there were no map and hands them to `accumulate` and `solved`; its
`state_type` is a `StateType`, its `state_bytes` goes through `mapped_bytes`, its parameters through `check_feature_map`.

Why this way: the engine asks every estimator the same four things and never learns that there is a map.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from stream_dr.checks import EXACT_WIDTH
from stream_dr.errors import InvalidParameter, OtherColumns, did_you_mean, other_table
from stream_dr.feature_maps import feature_map, whole_spec
from stream_dr.feature_maps.nystroem import Nystroem
from stream_dr.feature_maps.table import (
    Table,
    TableState,
    check_columns,
    columns_by_kind,
)
from stream_dr.feature_maps.widths import check_most_columns, most_columns, most_of_kinds
from stream_dr.projection import Mapped, Projection
from stream_dr.rows.block import Block, Rows
from stream_dr.statistics.mapped import LandmarkAccumulator, MappedAccumulator, MappedState, TableAccumulator
from stream_dr.statistics.protocol import nested_state


class StateType:
    """state_type of an estimator that takes a feature map: MappedState where it has one, else the given class."""

    def __init__(self, plain: type) -> None:
        self.plain = nested_state(plain)

    def __get__(self, instance: Any, owner: type) -> type:
        return MappedState if instance is not None and instance.feature_map is not None else self.plain


def check_feature_map(spec: Any) -> None:
    """Raise InvalidParameter unless spec is None or the spec of a map."""
    if spec is not None:
        feature_map(spec)


def check_mapped_width(spec: Any, widest: int) -> None:
    """Raise InvalidParameter for a map (spec None: none) that makes more than `widest` columns, whatever rows come."""
    made = None if spec is None else feature_map(spec)
    if made is not None and made.out_features(0) > widest:
        raise InvalidParameter(
            f"exact scatter is kept of up to {widest} features, and this feature_map makes {made.out_features(0)}. Have it "
            'make fewer, or leave the scatter to scatter="auto".'
        )


def accumulate(spec: Any, build: Callable[[Any], Any], state: Any) -> Any:
    """Return the accumulator `build(state)`, behind the map of `spec` if there is one."""
    if spec is None:
        return build(state)
    made = feature_map(spec)
    if made.learns:
        return TableAccumulator(spec, build, state)
    return (LandmarkAccumulator if isinstance(made, Nystroem) else MappedAccumulator)(spec, build, state)


def solved(state: Any, solve: Callable[[Any], Projection]) -> Projection:
    """`solve(state)`, behind the map that the state's rows went through."""
    if not isinstance(state, MappedState):
        return solve(state)
    return through(state, solve(state.inner))


def inner_state(state: Any) -> Any:
    """The state of the rows that are learned from: mapped ones, where there is a map."""
    return state.inner if isinstance(state, MappedState) else state


def through(state: Any, projection: Projection) -> Projection:
    """Return a projection of mapped rows as one of rows, if the state has a map."""
    if not isinstance(state, MappedState):
        return projection
    return Mapped(state.feature_map, state.names, state.n_features, projection, state.table, state.landmarks)


def table_columns(state: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Return `columns_by_kind` of the columns learned from, None without a map of tables."""
    made = feature_map(state.feature_map) if isinstance(state, MappedState) and state.table is not None else None
    if not isinstance(made, Table):
        return None
    # Columns of the last batches may not be in the inner state yet.
    numbers, categories, gaps = (c[c < state.inner.n_features] for c in columns_by_kind(state.table, made.making()))
    return numbers, categories, gaps


def mapped_bytes(spec: Any, bytes_of: Callable[[int, int], int], n_features: int, n_targets: int) -> int:
    """`bytes_of(features, targets)` of the mapped rows, and the map's own memory."""
    if spec is None:
        return bytes_of(n_features, n_targets)
    made = feature_map(spec)
    width = made.out_features(n_features)
    return _most_bytes(bytes_of, width, n_targets) + made.bytes(n_features)


def state_bytes(estimator: Any, n_features: int, n_targets: int, known: dict[str, str] | TableState | None) -> int:
    """Bytes of an estimator's state at most. known: kinds of a table's columns by name, "" where it is not known yet, or
    what is learned of them, so that only texts count as words; None: no table."""
    spec = getattr(estimator, "feature_map", None)
    made = None if spec is None else feature_map(spec)
    if known is None or not isinstance(made, Table):
        return int(estimator.state_bytes(n_features, n_targets))
    if isinstance(known, TableState):
        width = most_columns(made.making(), known.columns)
    else:
        width = most_of_kinds(made.making(), made.wishes(), known)
    plain = type(estimator)(**(estimator.get_params() | {"feature_map": None}))
    return _most_bytes(plain.state_bytes, width, n_targets) + 64 * width


def _most_bytes(bytes_of: Callable[[int, int], int], width: int, n_targets: int) -> int:
    """Bytes of rows of at most so many columns: those of fewer, whose whole scatter is kept, may take more."""
    return max(bytes_of(width, n_targets), bytes_of(min(width, EXACT_WIDTH), n_targets))


def tell_columns(accumulator: Any, block: Block) -> None:
    """Warn (OtherColumns) of columns that a table lacks, and of those that the first rows did not have.

    Raises SchemaMismatch where it has none of them: an array, whose columns have no names, or another table.
    """
    known, names = getattr(accumulator, "table_names", ()), block.names or ()
    if not known or names == known or not block.rows:
        return
    if not set(known) & set(names):
        raise other_table(known, names)
    missing = [name for name in known if name not in names]
    gone = [repr(name) for name in missing[:5]]
    new = [f"{name!r}{did_you_mean(name, missing)}" for name in names if name not in known][:5]
    told = [f"there is no column {', '.join(gone)}, which is taken as missing"] if gone else []
    told += [f"{', '.join(new)} was not among the first rows' columns, and is left out"] if new else []
    if told:
        warnings.warn(f"{'; '.join(told)}.", OtherColumns, stacklevel=4)


def same_parameters(a: Any, b: Any) -> bool:
    """Whether two estimators of one class have the same parameters; what a map's spec leaves out is its default."""
    mine, theirs = a.get_params(), b.get_params()
    for given in (mine, theirs):
        if given.get("feature_map") is not None:
            given["feature_map"] = whole_spec(given["feature_map"])
    return bool(mine == theirs)


def merges_parts(estimator: Any) -> bool:
    """Whether states of an estimator that learned parts of a stream merge: not those on landmarks of their own, or with a γ
    that each part decides."""
    spec = getattr(estimator, "feature_map", None)
    made = None if spec is None else feature_map(spec)
    return bool(estimator.merges) and (
        made is None or (made.settled and not (isinstance(made, Nystroem) and made.draws))
    )


def subtracts_exactly(accumulator: Any) -> bool:
    """Whether an accumulator that rows are subtracted from is as if they had never been learned: not where a map's
    statistics, which they were in, have filled or weighed rows that stay."""
    return not (isinstance(accumulator, TableAccumulator) and accumulator.depends_on_others)


def takes_tables(estimator: Any) -> bool:
    """Whether an estimator has a feature map that makes numbers of a table's columns, whatever they hold."""
    spec = getattr(estimator, "feature_map", None)
    return spec is not None and bool(feature_map(spec).learns)


def check_table(estimator: Any, rows: Rows) -> None:
    """Raise what keeps an estimator from learning a table of such columns, in these rows or ever: SchemaMismatch or
    InvalidRows."""
    spec = getattr(estimator, "feature_map", None)
    check_columns(None if spec is None else feature_map(spec), rows)


def check_table_width(estimator: Any, kinds: dict[str, str]) -> None:
    """Raise TooManyFeatures where an estimator of exact scatter may come to more columns than it can learn. kinds: of a
    table's columns by name, "" where it is not known yet."""
    spec = getattr(estimator, "feature_map", None)
    made = None if spec is None else feature_map(spec)
    if isinstance(made, Table) and getattr(estimator, "scatter_kept", str)() == "exact":
        check_most_columns(made.making(), made.wishes(), kinds, EXACT_WIDTH)
