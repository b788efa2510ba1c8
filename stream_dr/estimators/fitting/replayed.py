"""One pass of refine over a source, with the rows as the estimator learned them.

Rows without targets are skipped if the method needs targets. Weights and decay are the same as
when learning.

The first pass also learns the stream again, without the scatter matrix Cxx, and compares the sums
with those of the state. The number of rows, their weight, the means, the cross-scatter and the
class weights must agree up to rounding. Another stream would give the solution of another problem
[mathematics §4], so an error is raised before anything is published. The comparison uses the
accumulator itself, so it always agrees with how rows are learned.

A pass takes O(entries · r) time for r directions. The first pass also takes the time of learning.
Memory is O(d · (r + k)) for d features and k targets.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from sklearn.base import clone

from stream_dr.errors import CannotRefine
from stream_dr.estimators.fitting.fitted_state import FittedState
from stream_dr.estimators.fitting.moments import Moments, moments_of
from stream_dr.feature_maps import feature_map
from stream_dr.feature_maps.table import add, mapped_rows, without_statistics
from stream_dr.rows.block import Block
from stream_dr.rows.source import Source
from stream_dr.solve.scatter_product import ScatterProduct
from stream_dr.statistics.mapped import MappedState
from stream_dr.statistics.moments.accumulator import MomentState
from stream_dr.statistics.moments.clock import aged_weights
from stream_dr.statistics.protocol import State
from stream_dr.targets.targets import labelled_rows, no_labels

if TYPE_CHECKING:
    from stream_dr.estimators.fitting.closed_form import ClosedForm

CLOSE = 1e-8
"""Largest difference that counts as rounding error, relative to the columns' standard deviation.

Changing one row of 1e6 makes a far larger difference.
"""

RefineProgress = Callable[[int, int], None]
"""Function called after each block with the pass number and the pass's number of rows so far."""


class Sums(NamedTuple):
    """Sums of a pass over the rows.

    Attributes
    ----------
    product : (features, r)
        Cxx @ columns, for the scatter Cxx of the rows.
    rows : int
        Number of rows read.
    fresh : State or None
        In the first pass, the state of an estimator that has learned these rows.
    """

    product: np.ndarray
    rows: int
    fresh: MomentState | None

    def merge(self, newer: "Sums") -> "Sums":
        """Return the sums over the rows of `self` and `newer`.

        newer: sums over later rows of the stream.
        """
        fresh = None if self.fresh is None or newer.fresh is None else self.fresh.merge(newer.fresh)
        return Sums(self.product + newer.product, self.rows + newer.rows, fresh)


class Replayed:
    """The rows that a state has learned, read again from a source.

    - estimator: unfitted estimator with the parameters of the state.
    - state: state that has learned the rows.
    - moments: moments of the state.
    - names: names of the features, if the rows come as named columns.
    - threads: number of threads for the products.
    """

    def __init__(
        self,
        estimator: "ClosedForm",
        state: MomentState,
        moments: Moments,
        names: tuple[str, ...] | None = None,
        threads: int = 1,
    ) -> None:
        self._threads = threads
        self._estimator = clone(estimator).set_params(scatter="diagonal")
        self._state = state
        self._moments = moments
        self._names = names
        # _rows is the number of rows that the first pass has read.
        self._rows = 0
        self._factors = self._estimator.row_factors(moments)
        self._clock = int(state.clock)
        self.scale = np.where(moments.rounding.varying(moments.diagonal), moments.scale, 0.0)

    def sums(
        self, source: Source, columns: np.ndarray, check: bool, progress: Callable[[int], None] | None = None
    ) -> "Sums":
        """Return the sums of a pass over a source, or over a part of a source.

        The sums give Cxx @ columns for the scatter Cxx of the scaled features. Raises
        CannotRefine.

        source: rows to read.
        columns: (features, r).
        check: True for the first pass, which learns the rows again to check them.
        progress: function that is called with the number of rows so far, or None.
        """
        fresh = FittedState(self._estimator.accumulator(), self._names)
        rows = 0

        with ScatterProduct(self._moments.mean, columns, self.scale, self._threads) as total:
            for position, event in source.events():
                block = self._parsed(fresh, event, position)
                if check:
                    fresh.accumulator.add(block)

                every = not self._estimator.target_kinds or self._estimator.unlabelled == "use"
                learned = block if every else labelled_rows(block)[0]
                rows += learned.rows
                total.add(learned, self._weights(learned, rows))
                if progress is not None:
                    progress(rows)
        return Sums(total.result(), rows, cast(MomentState, fresh.accumulator.freeze()) if check else None)

    def checked(self, sums: "Sums", columns: np.ndarray) -> tuple[np.ndarray, int]:
        """Return Cxx @ columns (features, r) and the number of rows, after checking the rows.

        Cxx is the scatter of the rows. Raises CannotRefine unless the rows are those that the
        state has learned.

        sums: sums of the pass.
        columns: (features, r).
        """
        if sums.fresh is not None:
            self._check_same_sums(sums.fresh)
            self._rows = sums.rows
        elif sums.rows != self._rows:
            raise CannotRefine(
                f"the source gave {sums.rows} rows in this pass and {self._rows} in the first one. Give one that can be "
                "read as often as needed: a list of batches, or an object whose events() begins anew at every call."
            )

        means = np.where(self.scale[:, None] > 0, self._moments.waiting_means, 0.0)
        factors = [1.0 if self._factors is None else self._factors.get(label, 0.0) for label in self._moments.waiting]
        return sums.product - (means * factors) @ (means.T @ columns), sums.rows

    def _parsed(self, fitted: FittedState, event: Block, position: int) -> Block:
        """Return the block parsed in the same way as when rows are learned.

        Raises CannotRefine if the block has another number of features than the state. Sparse rows
        may have fewer.
        """
        block, _ = self._estimator.parse(fitted, event, need_targets=False)
        if block.features > self._state.n_features or (not block.sparse and block.features < self._state.n_features):
            raise CannotRefine(
                f"the source's event {position} has {block.features} features; the state has seen "
                f"{self._state.n_features}. Give the stream this estimator has learned."
            )
        return block

    def _weights(self, block: Block, rows: int) -> np.ndarray | None:
        decay, weights = float(self._estimator.decay), block.weights
        if decay != 1.0:
            weights = aged_weights(
                np.ones(block.rows) if weights is None else weights, decay, max(0, self._clock - rows)
            )
        if self._factors is None:
            return weights
        y = block.y or no_labels(block.rows)
        # A row without a label has the code −1, which is the last entry.
        factors = np.array([self._factors.get(label, 0.0) for label in (*y.labels, None)])[y.codes]
        return factors if weights is None else factors * weights

    def _check_same_sums(self, fresh: MomentState) -> None:
        """Raise CannotRefine unless the rows of this pass have the sums of the state."""
        if fresh.rows != self._state.rows or fresh.n_features != self._state.n_features:
            raise CannotRefine(
                f"the source has {fresh.rows} rows of {fresh.n_features} features; this state has seen "
                f"{self._state.rows} of {self._state.n_features}. Give exactly the rows it has learned, once each."
            )

        differs = state_difference(self._state, fresh)
        if differs is not None:
            raise CannotRefine(
                f"the source is not what this state has seen: its {differs} differ by more than rounding. "
                f"Give the rows, targets and weights it has learned{self._order_hint()}."
            )

    def _order_hint(self) -> str:
        """Return the end of an error message, which says that the order of rows matters.

        Without decay the order does not matter, and the result is "".
        """
        if float(self._estimator.decay) == 1.0:
            return ""
        gap = "; rows taken out from between others left a gap in age that no source has: fit anew without them"
        return ", in their order" + (gap if self._clock != self._state.rows else "")


class MappedSource:
    """A source whose rows are mapped by an estimator's feature map.

    state: state that has learned the rows, with the width and the statistics of the map.
    """

    def __init__(
        self, estimator: "ClosedForm", state: MappedState, source: Source, names: tuple[str, ...] | None
    ) -> None:
        self._estimator = estimator
        self._source = source
        self._map = feature_map(state.feature_map)
        self._width = state.n_features
        self._table = state.table
        self._on_landmarks = state.landmarks is not None
        self._known = FittedState(estimator.accumulator(state), names)

    def events(self, after: int = -1, until: int | None = None) -> Iterator[tuple[int, Block]]:
        """Yield (position, Block) of mapped rows, with their targets and weights."""
        table = None if self._table is None else without_statistics(self._table)
        landmarks = self._map.begin() if self._on_landmarks else None
        for position, event in self._source.events(after, until):
            block, _ = self._estimator.parse(self._known, event, need_targets=False)
            # A row must be mapped with the map's landmarks or statistics when it was learned.
            if landmarks is not None:
                landmarks = self._map.grown(landmarks, block)
                rows = self._map.coordinates(landmarks, block.X)
            elif table is None:
                rows = self._map.apply(block.X, self._width, block.names)
            else:
                table = add(self._map, table, block.X)
                rows = mapped_rows(self._map, table, block.X)
            yield position, block._replace(X=rows, names=None, width_stated=True, checked=False)


def without_feature_map(
    estimator: "ClosedForm", state: State, source: Source, names: tuple[str, ...] | None
) -> tuple["ClosedForm", MomentState, Source, tuple[str, ...] | None]:
    """Return (estimator, state, source, names) for the mapped rows.

    The returned estimator has no feature map, and the returned source yields mapped rows. Without
    a feature map the arguments are returned.
    """
    if not isinstance(state, MappedState):
        return estimator, cast(MomentState, state), source, names
    plain = clone(estimator).set_params(feature_map=None)
    return plain, cast(MomentState, state.inner), MappedSource(estimator, state, source, names), None


def state_difference(state: MomentState, fresh: MomentState) -> str | None:
    """Return the name of a sum that differs between two states of equally many rows, or None.

    The names are "weights", "means", "labels", "class weights" and "targets".
    """
    a, b = moments_of(state), moments_of(fresh)
    if abs(a.weight - b.weight) > CLOSE * a.weight:
        return "weights"

    deviations = np.sqrt(a.diagonal / a.weight) if a.weight else np.zeros(len(a.mean))
    if np.any(np.abs(a.mean - b.mean) > CLOSE * deviations + 1e-12 * np.abs(a.mean)):
        return "means"

    order = _fresh_column_order(state, fresh, a, b)
    if order is None or a.cross.shape != b.cross.shape:
        return "labels"
    if np.any(np.abs(a.label_weights - b.label_weights[order]) > CLOSE * a.label_weights):
        return "class weights"

    size = np.sqrt(np.trace(a.target_scatter)) * np.sqrt(a.diagonal.sum())
    noise = CLOSE * size + 1e-12 * float(np.linalg.norm(a.rounding.shift)) * np.sqrt(a.weight)
    return "targets" if np.linalg.norm(a.cross - b.cross[:, order]) > noise else None


def _fresh_column_order(state: MomentState, fresh: MomentState, a: Moments, b: Moments) -> list[int] | slice | None:
    """Return the indices of the fresh state's target columns in the order of the state's labels.

    Returns None if the labels differ.

    a: moments of `state`.
    b: moments of `fresh`.
    """
    if not state.labels:
        return slice(None)
    mine = [label for label, there in zip(state.labels, a.present, strict=True) if there]
    theirs = [label for label, there in zip(fresh.labels, b.present, strict=True) if there]
    return [theirs.index(label) for label in mine] if set(mine) == set(theirs) else None
