"""States and accumulators of rows that a feature map transformed.

A feature map computes new rows (mapped rows) from the rows that the user passes. An estimator with
a feature map learns only mapped rows. The classes here wrap the estimator's own accumulator and
state, which are called the inner accumulator and the inner state. So any estimator can have any
feature map.

The wrapper also stores the number of columns before the map, and their names if the map finds
columns by name. The wrapper adds the cost of the map to the cost of each row. Mapped states can be
merged if inner states can be merged. Rows can be unlearned if the inner accumulator can unlearn.

Before states of tables are merged, the mapped features of one state get the numbers that they have
in the other (`renumber_features`). The copy equals the state that is obtained if the features are
renumbered first and the rows are learned afterwards.
"""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from stream_dr.aliases import JsonDict
from stream_dr.batch.block import Block, check_finite
from stream_dr.batch.table import table_from_array, table_kinds
from stream_dr.batch.targets import Label
from stream_dr.checks import FEATURE_COUNT_LIMIT, MAX_EXACT_WIDTH, check_field_equals, check_within, field_error
from stream_dr.errors import CannotMerge, CannotUnlearn, OnlyDiagonal, WidthMismatch, width_mismatch
from stream_dr.feature_maps import canonical_spec_json, feature_map, spec_of_map
from stream_dr.feature_maps.nystroem import Landmarks
from stream_dr.feature_maps.table import (
    Table,
    TableState,
    map_table_rows,
    maps_without_statistics,
    merge_table_states,
    slices_within_memory_limit,
    update_statistics,
)
from stream_dr.feature_maps.table_columns import TableColumn, read_column
from stream_dr.feature_maps.widths import (
    check_max_encoded_columns,
    diagonal_only_reason,
    max_table_width,
)
from stream_dr.projection import Columns, Linear, Mapped, checked_feature_map, row_slices_to_map
from stream_dr.readout import Readout
from stream_dr.statistics.moments.centred_part import CentredPart
from stream_dr.statistics.moments.class_scatter import ClassScatter
from stream_dr.statistics.moments.folds import FoldedState
from stream_dr.statistics.moments.label_sets import LabelSets
from stream_dr.statistics.moments.largest import Largest
from stream_dr.statistics.moments.sparse_sums import SparsePart
from stream_dr.statistics.moments.state import MomentState
from stream_dr.statistics.protocol import Absent, Accumulator, AccumulatorBase, State, register_nested_state
from stream_dr.statistics.reservoir import Reservoir
from stream_dr.statistics.row_hashes import row_and_target_hashes, table_row_hashes
from stream_dr.uncertainty import ComponentSpread, CrossValidation


class MappedState(NamedTuple):
    """State of mapped rows, with their feature map.

    Attributes
    ----------
    rows, rows_skipped, target_kind, labels
        The same as in `inner`.
    n_features : int
        Number of features before the map.
    feature_map : str
        Parameters of the map as JSON.
    names : tuple of str or None
        Names of the columns before the map. None if the map does not find columns by name, or if
        batches had different names.
    inner : State
        State of the mapped rows.
    table : TableState or None
        Running statistics of the columns, for maps that use them (table, text, scaling).
    landmarks : Landmarks or None
        Landmarks of a Nyström map, which are the rows that other rows are compared with.
    """

    rows: int
    rows_skipped: int
    n_features: int
    target_kind: str | None
    labels: tuple[Label, ...]
    feature_map: str
    names: tuple[str, ...] | None
    inner: Any
    table: TableState | None = None
    landmarks: Landmarks | None = None

    def check(self) -> None:
        """Raise DamagedFile unless the fields of the state fit together.

        For example, `inner` must have as many features as the feature map makes.
        """
        check_within(self, 0, FEATURE_COUNT_LIMIT, "n_features")
        mapping = checked_feature_map(self, self.n_features)
        self.inner.check()
        for name in ("rows", "rows_skipped", "target_kind", "labels"):
            check_field_equals(self, name, getattr(self.inner, name))

        width = mapping.max_mapped_columns(self.n_features) if self.table is None else self.table.width
        if not (0 <= self.inner.n_features <= width if mapping.learns else self.inner.n_features in (0, width)):
            actual = f"of {self.inner.n_features} features"
            raise field_error(self, "inner", actual, f"of the {width} that the map makes")
        if mapping.learns and self.rows and self.table is None:
            raise field_error(self, "table", "None", "there, rows having been learned")

    def merge(self, other: "MappedState") -> "MappedState":
        """Return the state of all rows of `self` and `other`.

        Raises CannotMerge if the feature maps differ, or if the estimator's own states (`inner`)
        cannot be merged.
        """
        # If a state has no rows, some parameters of its feature map may not be decided yet.
        # Return the other state if its map is the same map with decided parameters.
        maps = feature_map(self.feature_map), feature_map(other.feature_map)
        if not self.rows and maps[0].could_become_after_batch(maps[1]):
            return other
        if not other.rows and maps[1].could_become_after_batch(maps[0]):
            return self

        if self.feature_map != other.feature_map:
            raise CannotMerge(f"states of the maps {self.feature_map} and {other.feature_map} cannot be merged.")

        if self.table is not None and other.table is not None:
            table, new_index = merge_table_states(maps[0], self.table, other.table)
            # Give the mapped features of `other` the indices that they have in the merged table.
            inner = self.inner.merge(renumber_features(other.inner, new_index, table.width))
            return _wrap_inner_state(inner, len(table.columns), self.feature_map, table.names, table)
        # If only one state has statistics of the columns (`table`), the other state has no rows.
        if self.table is not None or other.table is not None:
            return self if self.table is not None else other

        # If one state has no rows, the result has the input columns of the other state.
        if not self.rows or not other.rows:
            merged = self if self.rows else other
        # Compare landmarks first, because only states of equal landmarks have equal columns.
        elif self.landmarks is not None and other.landmarks is not None:
            if not self.landmarks.has_same_rows(other.landmarks):
                raise CannotMerge(
                    "the states have landmarks of their own, and coordinates on others mean something else: give both the "
                    "same, as nystroem(landmarks=rows)."
                )
            widest = max(self.landmarks, other.landmarks, key=lambda marks: marks.n_features)
            landmarks = widest._replace(seen=self.landmarks.seen + other.landmarks.seen)
            merged = self._replace(n_features=widest.n_features, landmarks=landmarks)
        elif self.names == other.names:
            merged = self._replace(n_features=max(self.n_features, other.n_features))
        else:
            # Only hashing merges columns of other names. It maps them to a fixed number of columns.
            merged = self._replace(n_features=maps[0].max_mapped_columns(0), names=None)
        inner = self.inner.merge(other.inner)
        return _wrap_inner_state(inner, merged.n_features, self.feature_map, merged.names, None, merged.landmarks)


class MappedAccumulator(AccumulatorBase):
    """Accumulator that learns rows transformed by a feature map.

    The transformed rows are called mapped rows. Another accumulator, the inner accumulator, learns
    them. Only one thread may change the accumulator.

    map_spec: parameters of the feature map.
    build_inner: function that returns the accumulator of the mapped rows. Its argument is a state
        to continue from, or None.
    state: state to continue from, or None.
    """

    # This attribute hides a property of the base class, which has no setter.
    inner: Accumulator = None  # type: ignore[assignment]

    def __init__(self, map_spec: JsonDict, build_inner: Callable[..., Accumulator], state: MappedState | None) -> None:
        self._map = feature_map(map_spec)
        self._spec = self._initial_spec = canonical_spec_json(self._map)
        learned = getattr(state, "feature_map", None)
        if learned is not None and self._map.could_become_after_batch(feature_map(learned)):
            self._map = feature_map(learned)
            self._spec = learned
        if state is not None and learned != self._spec:
            raise CannotMerge(f"this state was learned with another feature map than {self._spec}.")
        self._build = build_inner
        start = state or MappedState(0, 0, 0, None, (), self._spec, None, None)
        self.inner = build_inner(start.inner)
        self.folds = self.inner.folds
        self.n_features = start.n_features
        self._names = start.names
        self.table = start.table
        self.landmarks = start.landmarks

    @property
    def first_batch_parameters(self) -> JsonDict:
        """Parameters that were computed from the first batch, by name.

        The only parameter is `feature_map`, the map with all of its parameters. The result is
        empty if the user has set all parameters of the map.
        """
        return {} if self._spec == self._initial_spec else {"feature_map": spec_of_map(self._map)}

    @property
    def rows(self) -> int:
        """Number of rows learned."""
        return self.inner.rows

    @property
    def rows_skipped(self) -> int:
        """Number of rows not learned because they had no target."""
        return self.inner.rows_skipped

    @property
    def target_kind(self) -> str | None:
        """Kind of targets. None before the first target.

        The kind is "class", "multilabel" or "continuous".
        """
        return self.inner.target_kind

    @property
    def labels(self) -> tuple[Label, ...]:  # type: ignore[override]
        """Distinct labels in order of first appearance."""
        return self.inner.labels

    @property
    def label_rows(self) -> np.ndarray | None:
        """Array (labels,) int64, the number of rows with each label.

        None if the inner accumulator does not count rows by label.
        """
        return self.inner.label_rows

    @property
    def table_names(self) -> tuple[str, ...]:  # type: ignore[override]
        """Names of the table's columns, empty unless the feature map reads tables."""
        if self.table is None:
            return ()
        return self.table.names

    @property
    def scatter(self) -> str:  # type: ignore[override]
        """Stored part of the mapped rows' scatter matrix."""
        return self.inner.scatter

    def add(self, block: Block) -> None:
        """Map a batch and learn the mapped rows.

        The batch is handled in parts, to bound memory. Raises WidthMismatch and the errors of the
        accumulator of the mapped rows. After an error nothing has changed.
        """
        before = self._map, self._spec, self.table, self.landmarks
        try:
            self._learn(block)
        except BaseException:
            self._map, self._spec, self.table, self.landmarks = before
            raise

    def remove(self, block: Block) -> None:
        """Remove a batch that was learned before.

        The batch is mapped again, and the mapped rows are removed. Raises CannotUnlearn.
        """
        width = self._width_and_names_with(block)[0]
        self._map_in_parts(block, width, self.inner.remove)

    def freeze(self) -> MappedState:
        """Return the state so far as a MappedState."""
        inner = self.inner.freeze()
        return _wrap_inner_state(inner, self.n_features, self._spec, self._names, self.table, self.landmarks)

    def _learn(self, block: Block) -> None:
        """Map a batch and learn the mapped rows.

        The caller restores the map, the statistics and the landmarks after an error.
        """
        # The first batch with rows decides parameters of the map that the user has not set.
        width, names = self._width_and_names_with(block)
        if not self._map.has_final_parameters:
            if not block.rows:
                return
            self._map = self._map.with_first_batch_parameters(block)
            self._spec = canonical_spec_json(self._map)

        if not self.n_features and block.rows:
            self._map.warn_if_unsuitable(block.X)
        self._map_in_parts(block, width, self.inner.add)
        if block.rows:
            self.n_features = width
            self._names = names

    def _map_in_parts(self, block: Block, n_input_features: int, learn_or_remove: Callable[[Block], None]) -> None:
        """Map a batch in parts, and call a function with each mapped part.

        The parts are ranges of rows, in order. After an error, the accumulator of the mapped rows
        is restored as it was before the first call.

        learn_or_remove: method of the accumulator of the mapped rows.
        """
        if self.table is None:
            parts = row_slices_to_map(block.rows, self._map)
        else:
            parts = slices_within_memory_limit(self._map, self.table, block.X)
        if len(parts) < 2:
            learn_or_remove(self._map_block(block, n_input_features))
            return

        before = self.inner.freeze()
        try:
            for part in parts:
                learn_or_remove(self._map_block(block.take(np.arange(block.rows)[part]), n_input_features))
        except BaseException:
            self.inner = self._build(before)
            raise

    def _map_block(self, block: Block, n_input_features: int) -> Block:
        # With folds, compute the hash of each row from the row before the map.
        # The hash of a row decides its fold.
        hashes = (
            row_and_target_hashes(block, self._map.by_name) if self.folds and block.hashes is None else block.hashes
        )
        if self.landmarks is None:
            X = self._map.apply(block.X, n_input_features, block.names)
        else:
            X = self._map.coordinates(self.landmarks, block.X)
        check_finite(X)
        return block._replace(X=X, names=None, width_stated=True, hashes=hashes)

    def _width_and_names_with(self, block: Block) -> tuple[int, tuple[str, ...] | None]:
        """Return the map's input columns after learning a batch.

        The accumulator is not changed. Raises WidthMismatch if the batch does not fit.

        block: the batch.
        """
        started = self.n_features > 0
        width = block.features
        if self._map.by_name and block.names is not None:
            same = block.names == self._names if started else not block.sparse
            if not same:
                return self._map.max_mapped_columns(0), None
            return width, block.names
        fixed = block.sparse and self._map.first_row_fixes_width
        if fixed and started and width > self.n_features:
            raise width_mismatch(width, self.n_features)
        if fixed and not started and not block.width_stated:
            raise WidthMismatch(
                f"feature map {self._spec} needs the width of the rows at the first batch: state it (`n_features`), or "
                "take the map without 'orthogonal'."
            )
        return max(width, self.n_features), None


class LandmarkAccumulator(MappedAccumulator):
    """Accumulator that learns rows transformed by a Nyström map.

    The map compares each row with some rows of the stream, the landmarks. The accumulator first
    draws new landmarks from a batch, and then learns the batch. Only one thread may change the
    accumulator.
    """

    def __init__(self, map_spec: JsonDict, build_inner: Callable[..., Accumulator], state: MappedState | None) -> None:
        super().__init__(map_spec, build_inner, state)
        self.landmarks: Landmarks = self.landmarks or self._map.initial_landmarks()
        # If the user has given landmarks as dense rows, they set the number of features.
        if state is None and self.landmarks.indices is None:
            self.n_features = self.landmarks.n_features

    def remove(self, block: Block) -> None:
        """Remove a batch that was learned before.

        Landmarks are rows that the map compares other rows with. CannotUnlearn is raised in two
        cases:

        * A row of the batch is a landmark.
        * Landmarks were drawn from more rows than there are landmarks. Then some landmarks may
        have been replaced. Rows that were learned with a replaced landmark cannot be mapped in the
        same way again.
        """
        if self._map.draws_landmarks and (self._map.first or 0) > self._map.max_landmarks:
            raise CannotUnlearn("rows were learned by the landmarks there were then. Learn anew without them.")
        if self._map.draws_landmarks and self.landmarks.any_is_row_of(block.X):
            raise CannotUnlearn(
                "among these rows are landmarks, on which all others have their coordinates. Learn anew without them (a "
                "directory's models are), or give landmarks: nystroem(landmarks=rows)."
            )
        super().remove(block)

    def _learn(self, block: Block) -> None:
        """Draw landmarks from a batch, then learn the batch."""
        self.landmarks = self._map.add_landmarks_from_batch(self.landmarks, block)
        super()._learn(block)


class TableAccumulator(MappedAccumulator):
    """Accumulator whose feature map needs running statistics of the columns.

    The map encodes the columns of a table, or scales dense rows. Each batch is first added to the
    statistics and then mapped with them. Only one thread may use the accumulator. `n_features` is
    the number of columns before the map.
    """

    def remove(self, block: Block) -> None:
        """Remove a batch that was learned before.

        The batch is mapped again, and the mapped rows must be the rows that were learned. But
        means and document frequencies of columns change with every batch. So CannotUnlearn is
        raised in two cases:

        * A missing number of a row was replaced by the column's mean. This does not happen if
        `impute` is a constant.
        * Words of a row were weighted by document frequency. This does not happen with idf=False.
        """
        rows = table_from_array(block.X, block.names)
        if self.table is None or not maps_without_statistics(self._map, self.table, rows):
            raise CannotUnlearn(
                "these rows have missing numbers or words, which were filled or weighed by the means and frequencies of "
                "their time. Learn anew without them (a directory's models are), or take a constant impute (table), or "
                "idf=False (text)."
            )
        table = update_statistics(self._map, self.table, rows, sign=-1)
        self.inner.remove(self._map_block(block._replace(X=rows), 0))
        self.table = table

    def _learn(self, block: Block) -> None:
        """Update the statistics of the columns, then learn a batch.

        The feature map transforms the batch with the updated statistics, and the mapped rows are
        learned. Raises SchemaMismatch, InvalidRows, and the errors of the accumulator of mapped
        rows.
        """
        rows = table_from_array(block.X, block.names)
        before = self.table
        if not rows.num_rows:
            return
        first = before is None and isinstance(self._map, Table)
        if first and self.scatter == "exact":
            check_max_encoded_columns(self._map, table_kinds(rows))

        self.table = update_statistics(self._map, before, rows)
        if first and self.scatter == "auto":
            # The table may get too many mapped columns for a whole scatter matrix.
            reason = diagonal_only_reason(self._map, self.table.columns)
            if reason:
                warnings.warn(reason, OnlyDiagonal, stacklevel=1)
        self._map_in_parts(block._replace(X=rows), 0, self.inner.add)
        self._names = self.table.names
        self.n_features = len(self._names)

    def _map_block(self, block: Block, n_input_features: int) -> Block:
        """Return the mapped rows of one part of a batch.

        The field `width_stated` of the result is True if the mapped rows will always have few
        enough columns for a whole scatter matrix (all pairs of columns). If it is True and
        scatter="auto", the whole matrix is stored.
        """
        table = self.table or TableState()
        stated = max_table_width(self._map, table.columns) <= MAX_EXACT_WIDTH
        hashes = block.hashes
        if self.folds and hashes is None:
            columns = ((column.name, read_column(column, block.X)) for column in table.columns if column.is_encoded)
            hashes = table_row_hashes(columns, block.y, block.rows)
        X = map_table_rows(self._map, table, block.X)
        return block._replace(X=X, names=None, width_stated=stated, hashes=hashes)


def _wrap_inner_state(
    inner: State,
    n_features: int,
    map_spec: str,
    names: tuple[str, ...] | None,
    table: TableState | None = None,
    landmarks: Landmarks | None = None,
) -> MappedState:
    """Return a MappedState whose fields fit the state of the mapped rows.

    inner: state of the mapped rows.
    n_features: number of features before the map.
    map_spec: parameters of the feature map as JSON.
    names, table, landmarks: fields of the result.
    """
    return MappedState(
        inner.rows,
        inner.rows_skipped,
        n_features,
        inner.target_kind,
        tuple(inner.labels),
        map_spec,
        names,
        inner,
        table,
        landmarks,
    )


for kind in (Linear, Readout, Columns, Mapped, TableState, TableColumn, Landmarks, CrossValidation, ComponentSpread):
    register_nested_state(kind)


_AXES: dict[type, dict[str, tuple[int, ...]]] = {
    SparsePart: {"features": (0,), "cross": (0,)},
    CentredPart: {"mean": (0,), "low": (0,), "diagonal": (0,), "scatter": (0, 1), "cross": (0,), "nonzero": (0,)},
    ClassScatter: {"mean": (1,), "low": (1,), "scatter": (1, 2)},
    Largest: {"features": (0,)},
}
"""Axes that run over features, for each array of each class of states.

The keys are the classes and the names of their fields.
"""


def renumber_features(state: Any, new_index: np.ndarray, n_features: int) -> Any:
    """Return a copy of the state with renumbered features.

    Raises CannotMerge if the state's class is not supported.

    new_index: (features,) int64, the new index of each feature.
    n_features: number of features of the result.
    """
    # If the state consists of other states, renumber the features of each of them.
    if isinstance(state, MomentState):
        names = ("features", "class_scatter", "label_sets", "largest")
        parts = {name: renumber_features(getattr(state, name), new_index, n_features) for name in names}
        return state._replace(n_features=n_features, **parts)
    if isinstance(state, FoldedState):
        return state._replace(parts=tuple(renumber_features(part, new_index, n_features) for part in state.parts))
    if isinstance(state, Absent):
        return state
    if isinstance(state, Reservoir):
        return _renumber_reservoir(state, new_index, n_features)
    if isinstance(state, LabelSets):
        return state.renumbered(new_index, n_features)

    # Find the axes over features of each array, because the state's fields are arrays here.
    axes = _AXES.get(type(state))
    if axes is None:
        name = type(state).__name__
        raise CannotMerge(f"a {name} of other columns cannot be merged: learn both with the same first rows.")
    fields = {name: _renumber_axes(getattr(state, name), of, new_index, n_features) for name, of in axes.items()}
    return state._replace(**fields)


def _renumber_axes(array: np.ndarray, axes: tuple[int, ...], new_index: np.ndarray, n_features: int) -> np.ndarray:
    """Return a copy of the array with renumbered features.

    An empty array is returned unchanged.

    axes: axes of the array that run over features.
    new_index: (features,) new index of each feature.
    n_features: number of features of the result.
    """
    if any(array.shape[i] == 0 for i in axes):
        return array
    out = np.zeros(tuple(n_features if i in axes else n for i, n in enumerate(array.shape)), array.dtype)
    places = [new_index[: array.shape[i]] if i in axes else np.arange(array.shape[i]) for i in range(array.ndim)]
    out[np.ix_(*places)] = array
    return out


def _renumber_reservoir(state: Reservoir, new_index: np.ndarray, n_features: int) -> Reservoir:
    """Return a sample of rows with renumbered features.

    The result is a copy. Dense rows do not change. (Features are renumbered only for rows of
    tables, which are CSR.)

    new_index: (features,) new index of each feature.
    n_features: number of features of the result.
    """
    if not state.rows or state.indices is None:
        return state._replace(n_features=n_features)
    rows = state.kept.copy()
    rows.indices = new_index[rows.indices].astype(np.int32)
    rows.has_sorted_indices = False
    rows.sort_indices()
    return state._replace(n_features=n_features, values=rows.data, indices=rows.indices, indptr=rows.indptr)
