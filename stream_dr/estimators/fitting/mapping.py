"""Feature maps in estimators: learning and solving with mapped rows.

An estimator with the parameter `feature_map` has an accumulator and a solver for plain rows. It
passes them to `make_accumulator` and `solve_mapped`, which map the rows first. Its `state_type` is
a `StateType`. Its `state_bytes` and `check_parameters` use `mapped_bytes` and `check_feature_map`.
So the service's engine does not need to know that there is a map.
"""

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np

from stream_dr.aliases import JsonDict
from stream_dr.checks import EXACT_WIDTH
from stream_dr.errors import InvalidParameter, OtherColumns, columns_mismatch, did_you_mean
from stream_dr.feature_maps import feature_map, whole_spec
from stream_dr.feature_maps.nystroem import Nystroem
from stream_dr.feature_maps.table import (
    Table,
    TableState,
    check_columns,
    columns_by_kind,
)
from stream_dr.feature_maps.widths import check_most_columns, max_columns, max_columns_of_kinds
from stream_dr.projection import Mapped, Projection
from stream_dr.rows.block import Block, Rows
from stream_dr.statistics.mapped import LandmarkAccumulator, MappedAccumulator, MappedState, TableAccumulator
from stream_dr.statistics.protocol import Accumulator, State, nested_state

if TYPE_CHECKING:
    from stream_dr.estimators.fitting.estimator import Estimator

InnerState = TypeVar("InnerState")
"""State of the rows that the method itself learns.

If there is a feature map, these are the mapped rows.
"""

InnerAccumulator = TypeVar("InnerAccumulator", bound=Accumulator)


class StateType:
    """Descriptor that returns the state type of an estimator with parameter `feature_map`.

    If the estimator has a feature map, the type is MappedState. Otherwise it is `plain`.
    """

    def __init__(self, plain: type) -> None:
        self.plain = nested_state(plain)

    def __get__(self, instance: "Estimator | None", owner: type) -> type:
        return MappedState if instance is not None and instance.feature_map is not None else self.plain


def check_feature_map(spec: JsonDict | None) -> None:
    """Raise InvalidParameter unless spec is None or a valid spec of a feature map."""
    if spec is not None:
        feature_map(spec)


def check_mapped_width(spec: JsonDict | None, widest: int) -> None:
    """Raise InvalidParameter if a map always makes more than `widest` columns.

    spec: spec of the map, or None if there is no map.
    """
    mapping = None if spec is None else feature_map(spec)
    if mapping is not None and mapping.out_features(0) > widest:
        raise InvalidParameter(
            f"exact scatter is stored of up to {widest} features, and this feature_map makes {mapping.out_features(0)}. "
            'Have it make fewer, or leave the scatter to scatter="auto".'
        )


def make_accumulator(
    spec: JsonDict | None, build: Callable[[InnerState], InnerAccumulator], state: State | None
) -> InnerAccumulator | MappedAccumulator:
    """Return the accumulator `build(state)`.

    If there is a feature map, the accumulator gets the mapped rows.

    spec: spec of the feature map, or None.
    build: function that returns an accumulator of the rows that the method itself learns.
    """
    if spec is None:
        return build(cast(InnerState, state))
    mapping = feature_map(spec)
    if mapping.learns:
        return TableAccumulator(spec, build, cast(MappedState | None, state))
    return (LandmarkAccumulator if isinstance(mapping, Nystroem) else MappedAccumulator)(
        spec, build, cast(MappedState | None, state)
    )


def solve_mapped(state: State, solve: Callable[[InnerState], Projection]) -> Projection:
    """Return the projection computed from `state`.

    If the state has a feature map, the projection maps its rows first.

    solve: function that computes the projection of the mapped rows.
    """
    return add_map(state, solve(cast(InnerState, inner_state(state))))


def inner_state(state: State) -> State:
    """Return the state of the mapped rows, or `state` itself if there is no map."""
    return state.inner if isinstance(state, MappedState) else state


def add_map(state: State, projection: Projection) -> Projection:
    """Return a projection that maps its rows first and then applies `projection`.

    If the state has no map, `projection` itself is returned.
    """
    if not isinstance(state, MappedState):
        return projection
    return Mapped(state.feature_map, state.names, state.n_features, projection, state.table, state.landmarks)


def inner_projection(projection: Projection) -> Projection:
    """Return the projection of the mapped rows, or `projection` itself if there is no map."""
    return projection.inner if isinstance(projection, Mapped) else projection


def table_columns(state: State) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Return the indices of a table map's columns by kind, or None without a map of tables.

    The three index arrays are those of numbers, of categories, and of columns that mark missing
    values.
    """
    if not isinstance(state, MappedState) or state.table is None:
        return None
    mapping = feature_map(state.feature_map)
    if not isinstance(mapping, Table):
        return None
    # The inner state may lack the newest columns, of which no row was learned yet.
    numbers, categories, gaps = (
        c[c < state.inner.n_features] for c in columns_by_kind(state.table, mapping.encoding())
    )
    return numbers, categories, gaps


def mapped_bytes(spec: JsonDict | None, bytes_of: Callable[[int, int], int], n_features: int, n_targets: int) -> int:
    """Return the size in bytes of a state, including the feature map's own memory.

    spec: spec of the feature map, or None.
    bytes_of: function that returns the size for a number of features and a number of targets.
    """
    if spec is None:
        return bytes_of(n_features, n_targets)
    mapping = feature_map(spec)
    width = mapping.out_features(n_features)
    return _most_bytes(bytes_of, width, n_targets) + mapping.bytes(n_features)


def state_bytes(
    estimator: "Estimator", n_features: int, n_targets: int, known: dict[str, str] | TableState | None
) -> int:
    """Return the largest size in bytes of an estimator's state.

    known: columns of a table, or None if the rows are no table. The columns are either a dict of
        kinds by column name ("" for an unknown kind), or the statistics learned. With the
        statistics, only columns whose kind is text are counted as text.
    """
    spec = estimator.feature_map
    mapping = None if spec is None else feature_map(spec)
    if known is None or not isinstance(mapping, Table):
        return int(estimator.state_bytes(n_features, n_targets))
    if isinstance(known, TableState):
        width = max_columns(mapping.encoding(), known.columns)
    else:
        width = max_columns_of_kinds(mapping.encoding(), mapping.overrides(), known)
    plain = type(estimator)(**(estimator.get_params() | {"feature_map": None}))
    return _most_bytes(plain.state_bytes, width, n_targets) + 64 * width


def _most_bytes(bytes_of: Callable[[int, int], int], width: int, n_targets: int) -> int:
    """Return the largest size in bytes for rows of at most `width` columns.

    The size for fewer columns may be larger, because their whole scatter matrix is stored.
    """
    return max(bytes_of(width, n_targets), bytes_of(min(width, EXACT_WIDTH), n_targets))


def warn_other_columns(accumulator: Accumulator, block: Block) -> None:
    """Warn OtherColumns if a block lacks columns or has new columns.

    Raises SchemaMismatch if none of the block's columns is known. This happens for an array, whose
    columns have no names, or for another table.
    """
    known, names = accumulator.table_names, block.names or ()
    if not known or names == known or not block.rows:
        return
    if not set(known) & set(names):
        raise columns_mismatch(known, names)

    missing = [name for name in known if name not in names]
    gone = [repr(name) for name in missing[:5]]
    new = [f"{name!r}{did_you_mean(name, missing)}" for name in names if name not in known][:5]

    messages = [f"there is no column {', '.join(gone)}, which is taken as missing"] if gone else []
    messages += [f"{', '.join(new)} was not among the first rows' columns, and is left out"] if new else []
    if messages:
        warnings.warn(f"{'; '.join(messages)}.", OtherColumns, stacklevel=4)


def same_parameters(a: "Estimator", b: "Estimator") -> bool:
    """True if two estimators of one class have the same parameters.

    Entries that the spec of a feature map omits have their default values.
    """
    mine, theirs = a.get_params(), b.get_params()
    for parameters in (mine, theirs):
        if parameters.get("feature_map") is not None:
            parameters["feature_map"] = whole_spec(parameters["feature_map"])
    return bool(mine == theirs)


def merges_parts(estimator: "Estimator") -> bool:
    """Return True if states learned from parts of a stream can be merged.

    They cannot be merged if each part chooses a feature map of its own, with its own landmarks
    (sampled rows that others are compared with) or its own kernel width γ.
    """
    spec = estimator.feature_map
    mapping = None if spec is None else feature_map(spec)
    return bool(estimator.merges) and (
        mapping is None or (mapping.settled and not (isinstance(mapping, Nystroem) and mapping.draws_landmarks))
    )


def subtracts_exactly(accumulator: Accumulator) -> bool:
    """Return True if removing rows gives the state that would exist without these rows.

    False if the feature map has used statistics of these rows to fill or weight other rows.
    """
    return not (isinstance(accumulator, TableAccumulator) and accumulator.mapping_depended_on_other_rows)


def takes_tables(estimator: "Estimator") -> bool:
    """True if the estimator's feature map accepts tables with any columns."""
    spec = estimator.feature_map
    return spec is not None and bool(feature_map(spec).learns)


def check_table(estimator: "Estimator", rows: Rows) -> None:
    """Raise an error if an estimator cannot learn a table with these columns.

    The error is SchemaMismatch or InvalidRows. The reason may be the table's columns, or only the
    values of these rows.
    """
    spec = estimator.feature_map
    check_columns(None if spec is None else feature_map(spec), rows)


def check_table_width(estimator: "Estimator", kinds: dict[str, str]) -> None:
    """Raise TooManyFeatures if the mapped table may be too wide for an exact scatter matrix.

    kinds: kinds of the table's columns by name, "" for an unknown kind.
    """
    spec = estimator.feature_map
    mapping = None if spec is None else feature_map(spec)
    if isinstance(mapping, Table) and estimator.stored_scatter() == "exact":
        check_most_columns(mapping.encoding(), mapping.overrides(), kinds, EXACT_WIDTH)
