"""One pass of refine over an estimator's learned rows.

The rows are read again from a source. They are treated as when they were learned. For example,
rows without targets are skipped if the method needs targets, and weights and decay are the same.

The first pass checks that the source has the rows that were learned. Another stream would give the
solution of another problem [mathematics §4]. For the check, the rows are learned again by a new
accumulator. The number of rows, their weight, the means, the cross-scatter and the class weights
must agree with the state up to rounding. If they differ, an error is raised.

A pass takes O(entries · r) time for r directions, and the first pass also the time of learning. A
pass takes O(d · (r + k)) memory for d features and k targets.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from sklearn.base import clone

from stream_dr.errors import CannotRefine
from stream_dr.estimators.fitting.fitted_state import FittedState
from stream_dr.estimators.fitting.mapping import mapped_state_of_all_folds
from stream_dr.estimators.fitting.moments import Moments, compute_moments
from stream_dr.feature_maps import feature_map
from stream_dr.feature_maps.table import clear_counts_keep_columns, map_table_rows, update_statistics
from stream_dr.rows.block import Block
from stream_dr.rows.source import Source
from stream_dr.solve.scatter_product import ScatterProduct
from stream_dr.statistics.mapped import MappedState
from stream_dr.statistics.moments.clock import decayed_weights
from stream_dr.statistics.moments.state import MomentState
from stream_dr.statistics.protocol import State
from stream_dr.targets.targets import drop_rows_without_target, targets_without_labels

if TYPE_CHECKING:
    from stream_dr.estimators.fitting.closed_form import ClosedForm

RELATIVE_TOLERANCE = 1e-8
"""Largest relative difference of two sums that counts as rounding error.

The differences of means are relative to the columns' standard deviations. If one row of a million
is changed, the difference is far larger.
"""

RefineProgress = Callable[[int, int], None]
"""Function that is called after each block of rows.

The arguments are the number of the pass and the number of rows that this pass has read.
"""


class Sums(NamedTuple):
    """Sums of a pass over the rows.

    Attributes
    ----------
    product : (features, r)
        Product of the rows' scatter and the columns of the pass.
    rows : int
        Number of rows read.
    fresh : MomentState or None
        In the first pass, the state of a new accumulator that has learned these rows. In later
        passes None.
    """

    product: np.ndarray
    rows: int
    fresh: MomentState | None

    def merge(self, newer: "Sums") -> "Sums":
        """Return the sums over two parts of the stream.

        newer: sums over the later part.
        """
        fresh = None if self.fresh is None or newer.fresh is None else self.fresh.merge(newer.fresh)
        return Sums(self.product + newer.product, self.rows + newer.rows, fresh)


class CheckedProduct(NamedTuple):
    """Product of a pass whose rows were checked.

    Attributes
    ----------
    product : (features, r)
        Product of the rows' scatter and the r columns of the pass.
    rows : int
        Number of rows read.
    """

    product: np.ndarray
    rows: int


class MappedInputs(NamedTuple):
    """Inputs of refine after the feature map.

    Attributes
    ----------
    estimator : ClosedForm
        Estimator without a feature map.
    state : MomentState
        State of the mapped rows.
    source : Source
        Source of mapped rows.
    names : tuple of str or None
        Names of the features, if there is no feature map and the rows have named columns.
    """

    estimator: "ClosedForm"
    state: MomentState
    source: Source
    names: tuple[str, ...] | None


class RowReplay:
    """Reader of a state's learned rows, for passes of refine.

    estimator: estimator with the parameters with which the state was learned.
    state: state that has learned the rows.
    moments: centred sums of the state.
    feature_names: names of the features, if the rows have named columns.
    n_threads: number of threads that compute products.
    """

    def __init__(
        self,
        estimator: "ClosedForm",
        state: MomentState,
        moments: Moments,
        feature_names: tuple[str, ...] | None = None,
        n_threads: int = 1,
    ) -> None:
        self._threads = n_threads
        self._estimator: ClosedForm = clone(estimator).set_params(scatter="diagonal", folds=0)
        self._state = state
        self._moments = moments
        self._names = feature_names
        # Number of rows that the first pass has read. Each later pass must read as many.
        self._rows = 0
        self._factors = self._estimator.row_weight_factors_by_label(moments)
        self._clock = int(state.clock)
        self.scale = np.where(moments.rounding.varying_columns(moments.diagonal), moments.scale, 0.0)

    def sum_over_pass(
        self, source: Source, columns: np.ndarray, relearn_rows: bool, progress: Callable[[int], None] | None = None
    ) -> Sums:
        """Return the sums of a pass over a source.

        The source may be a part of a larger source. The sums include the product of the rows'
        scatter and `columns`. Raises CannotRefine if rows have another number of features than the
        state.

        source: rows to read.
        columns: (features, r), the r columns to multiply.
        relearn_rows: True for the first pass, in which a new accumulator learns the rows again.
        progress: function that is called with the number of rows read so far, or None.
        """
        fresh = FittedState(self._estimator.accumulator(), self._names)
        rows = 0

        with ScatterProduct(self._moments.mean, columns, self.scale, self._threads) as total:
            for position, event in source.events():
                block = self._parse_source_block(fresh, event, position)
                if relearn_rows:
                    fresh.accumulator.add(block)

                # Rows without a target are left out, unless the estimator learns them.
                every = not self._estimator.target_kinds or self._estimator.unlabelled == "use"
                learned = block if every else drop_rows_without_target(block)[0]
                rows += learned.rows
                total.add(learned, self._scatter_weights(learned, rows))
                if progress is not None:
                    progress(rows)
        return Sums(total.result(), rows, cast(MomentState, fresh.accumulator.freeze()) if relearn_rows else None)

    def checked_product(self, pass_sums: Sums, columns: np.ndarray) -> CheckedProduct:
        """Check the rows of a pass, and return its product.

        Raises CannotRefine if the rows are not the rows that the state has learned.

        pass_sums: sums of the pass.
        columns: (features, r), the r columns that were multiplied.
        """
        if pass_sums.fresh is not None:
            self._check_first_pass_read_learned_rows(pass_sums.fresh)
            self._rows = pass_sums.rows
        elif pass_sums.rows != self._rows:
            raise CannotRefine(
                f"the source gave {pass_sums.rows} rows in this pass and {self._rows} in the first one. Give one "
                "that can be read as often as needed: a list of batches, or an object whose events() begins anew at "
                "every call."
            )

        # Remove the influence of the means of labels with too few rows to be classes.
        means = np.where(self.scale[:, None] > 0, self._moments.scaled_waiting_means, 0.0)
        factors = [1.0 if self._factors is None else self._factors.get(label, 0.0) for label in self._moments.waiting]
        return CheckedProduct(pass_sums.product - (means * factors) @ (means.T @ columns), pass_sums.rows)

    def _parse_source_block(self, replay_state: FittedState, unparsed_block: Block, position: int) -> Block:
        """Return a block of the source, parsed as in `partial_fit`.

        Raises CannotRefine if the block has another number of features than the state. Sparse
        blocks may have fewer features.

        replay_state: state of the new accumulator of this pass, with the names of the features.
        unparsed_block: rows, targets and weights.
        position: position of the block in the stream, for the error message.
        """
        block, _ = self._estimator.parse(replay_state, unparsed_block, raise_if_no_targets=False)
        if block.features > self._state.n_features or (not block.sparse and block.features < self._state.n_features):
            raise CannotRefine(
                f"the source's event {position} has {block.features} features; the state has seen "
                f"{self._state.n_features}. Give the stream this estimator has learned."
            )
        return block

    def _scatter_weights(self, block: Block, n_rows_including_block: int) -> np.ndarray | None:
        """Return the weights of a block's rows in the scatter.

        The weights have the shape (rows,). The result is None if all weights are 1. The weights
        include decay and the factors of the rows' classes.

        n_rows_including_block: number of rows of this pass so far, including the block's rows.
        """
        # Multiply the weights by the decay, by which older rows have smaller weights.
        decay, weights = float(self._estimator.decay), block.weights
        if decay != 1.0:
            age = max(0, self._clock - n_rows_including_block)
            weights = decayed_weights(np.ones(block.rows) if weights is None else weights, decay, age)
        if self._factors is None:
            return weights

        y = block.y or targets_without_labels(block.rows)
        # The code −1 of a row without a label selects the last factor, which has the key None.
        factors: np.ndarray = np.array([self._factors.get(label, 0.0) for label in (*y.labels, None)])[y.codes]
        return factors if weights is None else factors * weights

    def _check_first_pass_read_learned_rows(self, first_pass_state: MomentState) -> None:
        """Check that the first pass has read the learned rows.

        Raises CannotRefine if the pass has read other rows. The sums of the learned state are
        compared with the sums of the first pass. They may differ only by rounding errors.

        first_pass_state: state of the new accumulator, which has learned the rows of the first
            pass.
        """
        if first_pass_state.rows != self._state.rows or first_pass_state.n_features != self._state.n_features:
            raise CannotRefine(
                f"the source has {first_pass_state.rows} rows of {first_pass_state.n_features} features; this state has "
                f"seen {self._state.rows} of {self._state.n_features}. Give exactly the rows it has learned, once each."
            )

        differs = name_differing_sum(self._state, first_pass_state)
        if differs is not None:
            # Only with decay does the order of rows change the sums.
            order = "" if float(self._estimator.decay) == 1.0 else ", in their order"
            raise CannotRefine(
                f"the source is not what this state has seen: its {differs} differ by more than rounding. "
                f"Give the rows, targets and weights it has learned{order}."
            )


class MappedSource:
    """Source of events, with rows mapped by a feature map.

    estimator: estimator with the feature map.
    state: state that has learned the rows. It also has the statistics that the map computed from
        the rows, such as the categories of a table's columns.
    source: source of the original rows, before the map.
    feature_names: names of the features, if the rows have named columns.
    """

    def __init__(
        self, estimator: "ClosedForm", state: MappedState, source: Source, feature_names: tuple[str, ...] | None
    ) -> None:
        self._estimator = estimator
        self._source = source
        self._map = feature_map(state.feature_map)
        self._width = state.n_features
        self._table = state.table
        self._on_landmarks = state.landmarks is not None
        self._known = FittedState(estimator.accumulator(state), feature_names)

    def events(self, after: int = -1, until: int | None = None) -> Iterator[tuple[int, Block]]:
        """Yield (position, Block) of mapped rows, with targets and weights."""
        table = None if self._table is None else clear_counts_keep_columns(self._table)
        landmarks = self._map.initial_landmarks() if self._on_landmarks else None
        for position, event in self._source.events(after, until):
            block, _ = self._estimator.parse(self._known, event, raise_if_no_targets=False)
            # Map each row with the statistics or landmarks that existed when the row was learned.
            if landmarks is not None:
                landmarks = self._map.add_landmarks_from_batch(landmarks, block)
                rows = self._map.coordinates(landmarks, block.X)
            elif table is None:
                rows = self._map.apply(block.X, self._width, block.names)
            else:
                table = update_statistics(self._map, table, block.X)
                rows = map_table_rows(self._map, table, block.X)
            yield position, block._replace(X=rows, names=None, width_stated=True, checked=False)


def strip_feature_map(
    estimator: "ClosedForm", state: State, source: Source, feature_names: tuple[str, ...] | None
) -> MappedInputs:
    """Return inputs of refine that need no feature map.

    The returned source maps the rows while it reads them. The returned estimator has no feature
    map, and the returned state is the state of the mapped rows. Mapped columns have no names.

    If the estimator has no feature map, the estimator, the source and the names are returned
    unchanged.

    In both cases, a state that has a separate sum for each cross-validation fold is replaced by
    the sum over all folds.

    estimator: estimator with or without a feature map.
    state: state that has learned the rows.
    source: source of the original rows, before the map.
    feature_names: names of the features, if the rows have named columns.
    """
    if not isinstance(state, MappedState):
        return MappedInputs(estimator, cast(MomentState, mapped_state_of_all_folds(state)), source, feature_names)
    plain = clone(estimator).set_params(feature_map=None)
    mapped_source = MappedSource(estimator, state, source, feature_names)
    return MappedInputs(plain, cast(MomentState, mapped_state_of_all_folds(state)), mapped_source, None)


def name_differing_sum(learned_state: MomentState, relearned_state: MomentState) -> str | None:
    """Return the name of a sum in which two states differ.

    The name is "weights", "means", "labels", "class weights" or "targets", or None if no sum
    differs. Differences by rounding errors are ignored. Both states have the same number of rows
    and features.

    learned_state: state that has learned the rows.
    relearned_state: state that has learned the rows of the first pass.
    """
    # Compare means relative to the columns' standard deviations.
    # Compare other sums relative to their own size.
    a, b = compute_moments(learned_state), compute_moments(relearned_state)
    if abs(a.weight - b.weight) > RELATIVE_TOLERANCE * a.weight:
        return "weights"

    deviations = np.sqrt(a.diagonal / a.weight) if a.weight else np.zeros(len(a.mean))
    if np.any(np.abs(a.mean - b.mean) > RELATIVE_TOLERANCE * deviations + 1e-12 * np.abs(a.mean)):
        return "means"

    order = _match_target_columns(learned_state, relearned_state, a, b)
    if order is None or a.cross.shape != b.cross.shape:
        return "labels"
    if np.any(np.abs(a.label_weights - b.label_weights[order]) > RELATIVE_TOLERANCE * a.label_weights):
        return "class weights"

    size = np.sqrt(np.trace(a.target_scatter)) * np.sqrt(a.diagonal.sum())
    noise = RELATIVE_TOLERANCE * size + 1e-12 * float(np.linalg.norm(a.rounding.shift)) * np.sqrt(a.weight)
    return "targets" if np.linalg.norm(a.cross - b.cross[:, order]) > noise else None


def _match_target_columns(
    learned_state: MomentState, relearned_state: MomentState, learned_moments: Moments, relearned_moments: Moments
) -> list[int] | slice | None:
    """Return the matching target columns of `relearned_state`.

    The result is a list of indices of target columns of `relearned_state`, in the order of the
    labels of `learned_state`. If targets are numbers, the result is a slice of all columns. If the
    labels differ, the result is None.

    learned_moments: moments of `learned_state`.
    relearned_moments: moments of `relearned_state`.
    """
    if not learned_state.labels:
        return slice(None)
    mine = [label for label, there in zip(learned_state.labels, learned_moments.present, strict=True) if there]
    theirs = [label for label, there in zip(relearned_state.labels, relearned_moments.present, strict=True) if there]
    return [theirs.index(label) for label in mine] if set(mine) == set(theirs) else None
