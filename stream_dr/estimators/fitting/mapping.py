"""Functions for estimators with the parameter `feature_map`.

A feature map changes rows (for example, by random Fourier features) before they are learned or
projected. An estimator itself only learns and solves rows of numbers. The functions of this module
add the map: `make_accumulator` to learning, `prepend_feature_map` to the solution,
`max_bytes_with_map` to the size of the state and `check_feature_map` to the check of parameters.
"""

import warnings
from collections.abc import Callable
from typing import TypeVar, cast

import numpy as np

from stream_dr.aliases import JsonDict
from stream_dr.batch.block import Block
from stream_dr.checks import MAX_EXACT_WIDTH
from stream_dr.errors import InvalidParameter, OtherColumns, did_you_mean, no_common_columns_error
from stream_dr.feature_maps import FeatureMap, feature_map
from stream_dr.feature_maps.nystroem import Nystroem
from stream_dr.feature_maps.table import Table, mapped_columns_by_kind
from stream_dr.projection import Linear, Mapped, Projection
from stream_dr.statistics.mapped import LandmarkAccumulator, MappedAccumulator, MappedState, TableAccumulator
from stream_dr.statistics.moments.folds import FoldedState
from stream_dr.statistics.moments.state import MomentState, scale_state
from stream_dr.statistics.protocol import Accumulator, State

InnerState = TypeVar("InnerState")
"""Type of an estimator's state without the feature map's own part."""

InnerAccumulator = TypeVar("InnerAccumulator", bound=Accumulator)


def check_feature_map(spec: JsonDict | None, max_columns: int | None = None) -> None:
    """Check that spec is None or a valid feature map.

    Raises InvalidParameter if spec is neither, or if the map always returns too many columns. Maps
    whose number of columns depends on the rows are checked with the rows.

    max_columns: largest number of columns that is allowed, or None for any number.
    """
    # `feature_map` raises InvalidParameter if the spec is invalid.
    mapping = feature_map(spec)
    if mapping is None or max_columns is None:
        return
    # The argument 0 means that the number of columns of the rows is not known yet.
    mapped = mapping.max_mapped_columns(0)
    if mapped > max_columns:
        raise InvalidParameter(
            f"exact scatter is stored of up to {max_columns} features, and this feature_map makes {mapped}. "
            'Have it make fewer, or leave the scatter to scatter="auto".'
        )


def make_accumulator(
    feature_map_spec: JsonDict | None, make_unmapped: Callable[[InnerState], InnerAccumulator], state: State | None
) -> InnerAccumulator | MappedAccumulator:
    """Return an accumulator that applies the feature map, if there is one.

    feature_map_spec: spec of the feature map, or None.
    make_unmapped: function that returns the accumulator without a map. Its argument is a state to
        continue from, or None.
    state: state to continue from, or None for an empty accumulator.
    """
    if feature_map_spec is None:
        return make_unmapped(cast(InnerState, state))
    # The map Nystroem draws landmarks (sampled rows) from the stream. A map with `learns` computes
    # statistics of a table's columns. Other maps do not depend on the rows.
    mapping = feature_map(feature_map_spec)
    accumulator_type = MappedAccumulator
    if isinstance(mapping, Nystroem):
        accumulator_type = LandmarkAccumulator
    if mapping.learns:
        accumulator_type = TableAccumulator
    return accumulator_type(feature_map_spec, make_unmapped, cast(MappedState | None, state))


def inner_linear_projection(projection: Projection) -> Linear:
    """Return the linear part of a projection, without its feature map.

    If there is no feature map, the projection itself is returned.

    projection: projection of an estimator whose components are linear.
    """
    return cast(Linear, inner_projection(projection))


def merged_mapped_state(state: State) -> State:
    """Return the state of the mapped rows.

    If there is no feature map, the result is the state of the rows themselves. If the rows are
    stored in folds, the result is the state of the rows of all folds.
    """
    inner = state_after_feature_map(state)
    if isinstance(inner, FoldedState):
        return inner.merge_folds()
    return inner


def inner_states_of_folds(state: State) -> tuple[MomentState, ...]:
    """Return one state for each fold of cross-validation.

    If the estimator has a feature map, they are the states of the mapped rows. The result is empty
    if the estimator does not divide its rows into folds.
    """
    inner = state_after_feature_map(state)
    if not isinstance(inner, FoldedState):
        return ()
    # Because of decay, the folds store their sums divided by the common `scale`.
    return tuple(scale_state(part, inner.scale) for part in inner.parts)


def count_rows_in_folds(state: State) -> list[int]:
    """Return the number of rows in each fold.

    The result is empty if rows are not in folds.
    """
    inner = state_after_feature_map(state)
    if isinstance(inner, FoldedState):
        return [part.rows for part in inner.parts]
    return []


def state_after_feature_map(state: State) -> State:
    """Return the part of a state that has learned the mapped rows.

    The other part of the state is the feature map, with its statistics of the rows. If there is no
    feature map, `state` itself is returned. If rows are in cross-validation folds, the result is a
    FoldedState with one state for each fold. `merged_mapped_state` merges them.
    """
    if isinstance(state, MappedState):
        return cast(State, state.inner)
    return state


def replace_inner_state(state: State, new_inner: State) -> State:
    """Return `state` with another inner state.

    The inner state has learned the rows after the feature map. The map itself is unchanged. If
    there is no feature map, `new_inner` itself is returned.
    """
    if isinstance(state, MappedState):
        return state._replace(inner=new_inner)
    return new_inner


def prepend_feature_map(state: State, projection: Projection) -> Projection:
    """Return `projection`, preceded by the state's feature map.

    If the state has no feature map, `projection` itself is returned.
    """
    if not isinstance(state, MappedState):
        return projection
    return Mapped(state.feature_map, state.names, state.n_features, projection, state.table, state.landmarks)


def replace_inner_fields(projection: Projection, **fields: object) -> Projection:
    """Return a linear projection with other values of some fields.

    If there is a feature map, fields of the projection that follows the map are replaced.
    """
    if isinstance(projection, Mapped):
        return projection._replace(inner=replace_inner_fields(projection.inner, **fields))
    return cast(Linear, projection)._replace(**fields)  # type: ignore[arg-type]


def inner_projection(projection: Projection) -> Projection:
    """Return the part of a projection after the feature map.

    If there is no feature map, `projection` itself is returned.
    """
    return projection.inner if isinstance(projection, Mapped) else projection


def mapped_columns_of_state(state: State) -> tuple[np.ndarray, ...] | None:
    """Return indices of columns from the feature map `table`, by kind.

    The result is None if the state does not have this feature map. Otherwise it has three arrays:
    the columns of numbers and dates, the columns of categories, and the columns that mark missing
    values.
    """
    # `state.table` has the map's statistics of the columns. Most maps have none.
    if not isinstance(state, MappedState) or state.table is None:
        return None
    table_map = feature_map(state.feature_map)
    if not isinstance(table_map, Table):
        return None

    # The map may have got new columns after the last row was learned. The state of the mapped rows
    # (`inner`) does not have them: its columns are the first `width` ones.
    width = state.inner.n_features
    return tuple(indices[indices < width] for indices in mapped_columns_by_kind(state.table, table_map))


def max_bytes_with_map(
    spec: JsonDict | None, unmapped_bytes: Callable[[int, int], int], n_features: int, n_targets: int
) -> int:
    """Return a state's size in bytes, including its feature map.

    spec: spec of the feature map, or None.
    unmapped_bytes: function that returns the size without a map. Its arguments are the number of
        features and the number of targets.
    """
    if spec is None:
        return unmapped_bytes(n_features, n_targets)
    mapping: FeatureMap = feature_map(spec)
    width = mapping.max_mapped_columns(n_features)
    return max_bytes_within(unmapped_bytes, width, n_targets) + mapping.bytes(n_features)


def max_bytes_within(state_bytes_of: Callable[[int, int], int], max_columns: int, n_targets: int) -> int:
    """Return the largest size in bytes of a state of at most `max_columns` columns.

    A state of fewer columns may be larger, because it stores the whole scatter matrix up to
    MAX_EXACT_WIDTH columns.

    state_bytes_of: function of a number of columns and a number of targets. It returns the size of
        such a state.
    """
    return max(state_bytes_of(max_columns, n_targets), state_bytes_of(min(max_columns, MAX_EXACT_WIDTH), n_targets))


def warn_if_columns_differ(accumulator: Accumulator, block: Block) -> None:
    """Issue the warning OtherColumns if a table has other columns.

    The columns of the block are compared with the columns of the learned table. Raises
    SchemaMismatch if the block has none of the learned columns. This is so for an array, whose
    columns have no names, and for an unrelated table.
    """
    # `known` is empty if no table was learned so far.
    # A block without rows has no values that could be read wrongly.
    known = accumulator.table_names
    names = block.names or ()
    if not known or names == known or not block.rows:
        return
    if not set(known) & set(names):
        raise no_common_columns_error(known, names)

    # The message names at most five columns that are missing, and at most five new columns.
    missing = [name for name in known if name not in names]
    listed = [repr(name) for name in missing[:5]]
    new = [f"{name!r}{did_you_mean(name, missing)}" for name in names if name not in known][:5]

    messages = []
    if listed:
        messages = [f"there is no column {', '.join(listed)}, which is taken as missing"]
    if new:
        messages.append(f"{', '.join(new)} was not among the first rows' columns, and is left out")
    # The user's call is at level 4 or above, depending on the method that reads the rows.
    if messages:
        warnings.warn(f"{'; '.join(messages)}.", OtherColumns, stacklevel=4)


def map_reads_tables(spec: JsonDict | None) -> bool:
    """True if a feature map reads tables of mixed columns."""
    mapping = feature_map(spec)
    return mapping is not None and bool(mapping.learns)
