"""Base class of everything that learns rows with an accumulator.

FittedState is the part of an estimator that changes when rows are learned. An estimator has one
FittedState, which is replaced as a whole. Some parameters of an estimator may
not change after rows were learned (`Estimator.fixed`). The FittedState stores the values that
these parameters had when its accumulator was made. `set_params` itself raises no error, because a
new `fit` may follow. An error is raised when rows are learned or the state is solved, merged or
saved.

The errors of an estimator that has learned too little are also scikit-learn's `NotFittedError`.
Their base classes in `stream_dr.errors` do not import scikit-learn, so a client can catch these
errors without scikit-learn.
"""

import warnings
from abc import abstractmethod
from collections.abc import Sized
from copy import copy, deepcopy
from functools import partial
from threading import RLock
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import Tags

from stream_dr import errors
from stream_dr.aliases import FileName, JsonDict
from stream_dr.batch.block import Block, as_weights
from stream_dr.batch.parsing import parse_targets
from stream_dr.batch.rows import TableStream, as_block, batches, drop_column, is_dask, take_target_column
from stream_dr.batch.table import default_column_names
from stream_dr.batch.targets import Targets, check_label_type
from stream_dr.estimators.fitting.dask_collections import learn_blocks, split_into_blocks
from stream_dr.estimators.fitting.inputs import RowsLike, TargetsLike, WeightsLike
from stream_dr.estimators.fitting.mapping import map_reads_tables, warn_if_columns_differ
from stream_dr.estimators.fitting.named_columns import joint_names, read_rows_and_names, refuse_empty_rows
from stream_dr.estimators.fitting.parameters import NamedParameters
from stream_dr.estimators.fitting.sklearn_bases import BaseEstimator
from stream_dr.feature_maps import feature_map
from stream_dr.feature_maps.nystroem import Nystroem
from stream_dr.projection import Linear, Projection, check_n_features
from stream_dr.solve.orientation import MultiplyByScatter, orient_components
from stream_dr.statistics.protocol import Accumulator, AdditiveState, State


class NotFitted(errors.NotFitted, NotFittedError):
    """Error of an estimator that has learned no row.

    It is also scikit-learn's NotFittedError.
    """


class NeedsRefine(errors.NeedsRefine, NotFitted):
    """Error of an estimator that has no projection before `refine`.

    It is also scikit-learn's NotFittedError.
    """


class FittedState:
    """Accumulator, feature names and solutions of a fitted estimator.

    Attributes
    ----------
    accumulator : Accumulator
        Accumulator to which new rows are added.
    names : tuple of str or None
        Names of the features.
    fixed_parameters : dict
        Parameters with which the accumulator was made, by name.
    projection : Projection or None
        Current projection, cached until more rows are learned.
    version : int
        Number of times that the cached projection became invalid.
    refined : Projection or None
        Projection computed by `refine`.
    shown : Projection or None
        Last projection that was returned to the user. It is not deleted when more rows are
        learned, because the next projection gets the same signs and order of components. It takes
        8 · features · components bytes, or the size of the sample for a method that learns a
        sample of the rows.
    neighbour_search : KNeighborsClassifier or None
        For the classifier KNearest, scikit-learn's classifier fitted on the current sample.
    last_warned_n_components : int or None
        Value of n_components for which the warning FewerComponents was issued.
    """

    def __init__(
        self,
        accumulator: Accumulator,
        feature_names: tuple[str, ...] | None = None,
        fixed_parameters: JsonDict | None = None,
    ) -> None:
        # What an estimator has learned: `accumulator` has sums or a sample of the rows. They depend
        # on some parameters, such as decay. Store their values, because they must not change.
        self.accumulator = accumulator
        self.names = feature_names
        self.fixed_parameters = fixed_parameters or {}
        # Ids (`id`) and values of the estimator's attributes at the last check of parameters.
        self._last_checked_attributes: tuple[tuple[int, ...], tuple[object, ...]] = ((), ())

        # The current projection, and the classifier of KNearest (`neighbour_search`). Both are
        # deleted when more rows are learned, and `version` counts how often.
        self.projection: Projection | None = None
        self.neighbour_search: Any = None
        self.version = 0
        # The result of `refine`, and the last projection that was returned to the user.
        self.refined: Projection | None = None
        self.shown: Projection | None = None
        # Value of n_components for which the warning FewerComponents was last issued.
        self.last_warned_n_components: int | float | None = None

    def forget_projection(self) -> None:
        """Delete the cached solutions, because they are no longer current."""
        self.projection = None
        self.neighbour_search = None
        self.version += 1

    def cache_projection(
        self, projection: Projection, multiply_by_scatter: MultiplyByScatter, version: int
    ) -> Projection:
        """Orient and cache a new projection, and return it.

        To orient is to give the components the signs and order of the last projection that the
        user has got. Components of solution "recurrence", which change little with each row, are
        not oriented. The projection is cached, unless rows were learned while it was solved.

        projection: the new projection.
        multiply_by_scatter: function that multiplies columns by the rows' scatter. The components
            of the new and the last projection are compared with this function.
        version: value of the attribute `version` when the projection's state was read. It changes
            whenever rows are learned.
        """
        # `shown` is the last projection that was oriented.
        if projection is not self.shown and projection.solution != "recurrence":
            projection = self.shown = orient_components(projection, self.shown, multiply_by_scatter)
        # Compute the projected mean (`offset`) once, and not for each row that is transformed.
        if isinstance(projection, Linear):
            projection = projection.with_offset()
        # `version` differs if rows were learned while the projection was solved.
        if version == self.version:
            self.projection = projection
        return projection

    def copy(self, estimator: "StreamLearner") -> "FittedState":
        """Return a copy that learns without changing this object."""
        copied = FittedState(estimator.accumulator(self.accumulator.freeze()), self.names, self.fixed_parameters)
        copied.shown = self.shown
        copied.last_warned_n_components = self.last_warned_n_components
        return copied

    def __getstate__(self) -> JsonDict:
        # The attributes include the estimator's lock, which cannot be copied.
        return {**vars(self), "_last_checked_attributes": ((), ())}

    def check_parameters(self, estimator: "StreamLearner") -> None:
        """Raise InvalidParameter if a parameter has an invalid value.

        A value is invalid if it is outside the parameter's range. For a parameter that decides how
        rows are learned, such as decay, a value is also invalid if it has changed since rows were
        learned.
        """
        # Skip the checks if the estimator's attributes are the same objects as at the last check.
        attributes = tuple(vars(estimator).values())
        identities = tuple(map(id, attributes))
        if identities != self._last_checked_attributes[0]:
            estimator.check_parameters()
            self.check_learning_parameters_unchanged(estimator)
            # Store the attributes too, because the id of a deleted object may be used again.
            self._last_checked_attributes = (identities, attributes)

    def check_learning_parameters_unchanged(self, estimator: "StreamLearner") -> None:
        """Raise InvalidParameter if a parameter changed that must not change.

        These are the parameters of the accumulator, which has learned rows with the old values.
        """
        for name, value in self.fixed_parameters.items():
            now = getattr(estimator, name)
            if now != value:
                # The user sets `folds`, from which `fold_count` is computed.
                if name == "fold_count":
                    name = "folds"
                raise errors.InvalidParameter(
                    f"{name}={now!r}; what {type(estimator).__name__} has learned was made with {name}={value!r}. Set it "
                    "back, or call fit with the rows again."
                )


def new_fitted_state(
    estimator: "StreamLearner", state: State | None = None, feature_names: tuple[str, ...] | None = None
) -> FittedState:
    """Return a new FittedState for an estimator's current parameters.

    A FittedState has everything that an estimator has learned.

    state: state from which learning continues. None means that no row was learned yet.
    """
    # Copy the values, because the caller may later change the dict of a feature map.
    fixed_parameters = {name: deepcopy(getattr(estimator, name)) for name in estimator.fixed}
    return FittedState(estimator.accumulator(state), feature_names, fixed_parameters)


class StreamLearner(NamedParameters, BaseEstimator):
    """Base class of the estimators and of the classifier `KNearest`.

    It has the attributes and methods that need only the accumulator. Several threads may use one
    estimator: rows are learned under its `lock`, and solved outside it.
    """

    fixed: ClassVar[tuple[str, ...]] = ()
    """Parameters of the accumulator, which may not change after rows were learned."""
    target_kinds: ClassVar[tuple[str, ...]] = ()
    """Kinds of targets that the estimator learns from. Empty for methods that ignore y."""
    merges: ClassVar[bool] = False
    """True if the states of two streams can be merged."""
    merges_as: ClassVar[str] = ""
    """Name of a similar estimator whose states can be merged, or "".

    Set only if states of this class cannot be merged.
    """

    # Defaults for estimators that do not have these parameters.
    feature_map: JsonDict | None = None
    unlabelled: Literal["skip", "use"] = "skip"
    target: str = ""
    folds_by: Literal["row", "id"] = "row"

    fitted_: FittedState
    _lock: RLock
    target_column_: str | None = None
    """Name of the column of X that had the targets, or None."""

    @property
    def lock(self) -> RLock:
        """Lock that a thread holds while it changes or reads what was learned.

        A copy of the estimator has its own lock.
        """
        try:
            return self._lock
        except AttributeError:
            # `setdefault` is atomic, so that the first calls of two threads get one lock.
            return cast(RLock, vars(self).setdefault("_lock", RLock()))

    def check_parameters(self) -> None:
        """Raise InvalidParameter if a parameter is outside its range.

        Subclasses that have parameters override this method.
        """

    @abstractmethod
    def accumulator(self, state: State | None = None) -> Accumulator:
        """Return a new accumulator, to which rows can be added.

        state: state from which the accumulator continues. None means an empty accumulator.
        """

    @abstractmethod
    def fitted(self) -> FittedState:
        """Return the fitted state: the accumulator and the last projection.

        Raises NotFitted if no batch was learned.
        """

    @abstractmethod
    def merge(self, other: Any) -> Self:
        """Add the rows of another learner, or raise CannotMerge."""

    def set_params(self, **params: object) -> Self:
        """Set parameters by name.

        Parameters for solving (such as gamma or standardize) take effect at the next projection.
        Parameters for learning (such as decay or feature_map) take effect at the next `fit`. Until
        this `fit`, the estimator raises InvalidParameter when it is used. An unknown name also
        raises InvalidParameter.
        """
        if error := errors.error_for_unknown_parameter(type(self).__name__, params, self.get_params()):
            raise error
        with self.lock:
            super().set_params(**params)
            # The cached projection was computed with the old values.
            if "fitted_" in vars(self):
                self.fitted_.forget_projection()
        return self

    def save(self, path: FileName) -> None:
        """Write parameters, state and the last projection to one file.

        `stream_dr.load` reads the file and returns an estimator that is equal bit by bit. The next
        projection of the loaded estimator has the same signs and order of components as the last
        projection of this estimator.
        """
        import stream_dr

        stream_dr.save(self, path)

    def merge_state(self, other: "StreamLearner") -> Self:
        """Add the rows that another learner has learned.

        `other` has the same class and parameters, and is unchanged. Columns are matched by
        position.
        """
        # Release the lock of `other` before taking the lock of `self`. Otherwise two threads that
        # merge a into b and b into a would wait for each other for ever.
        with other.lock:
            theirs = other.fitted()
            theirs.check_learning_parameters_unchanged(other)
            their_names = theirs.names
            their_state = theirs.accumulator.freeze()

        with self.lock:
            mine = self.fitted()
            mine.check_learning_parameters_unchanged(self)
            # A state without rows has no columns that could be mistaken for others.
            names = mine.names or their_names
            if mine.accumulator.rows and their_state.rows:
                names = joint_names(mine.names, their_names)
            state = cast(AdditiveState, mine.accumulator.freeze()).merge(their_state)
            # The next projection gets the signs and order of the last one that the user has seen.
            self.fitted_ = new_fitted_state(self, state, names)
            self.fitted_.shown = mine.shown
        return self

    def without_target_column(self, rows: Block) -> Block:
        """Return rows without the column that had the targets.

        A column that was learned as a feature is not dropped.
        """
        name = self.target_column_
        if name is None:
            return rows
        fitted = self.fitted()
        features = fitted.accumulator.table_names or fitted.names or ()
        if name in features:
            return rows
        return drop_column(rows, name)

    @property
    def n_samples_seen_(self) -> int:
        """Number of rows learned."""
        return int(self.fitted().accumulator.rows)

    @property
    def n_features_in_(self) -> int:
        """Number of features of the rows learned so far."""
        return int(self.fitted().accumulator.n_features)

    @property
    def feature_names_in_(self) -> np.ndarray:
        """Names (features,) of the features, as strings.

        Raises AttributeError if the first batch had no column names.
        """
        names = self.fitted().accumulator.table_names or self.fitted().names
        if names is None:
            raise AttributeError(f"{type(self).__name__} was given rows without feature names.")
        return np.asarray(names, dtype=object)

    def __getstate__(self) -> JsonDict:
        # A lock cannot be copied.
        state = cast(JsonDict, super().__getstate__())
        return {name: value for name, value in state.items() if name != "_lock"}

    def __sklearn_is_fitted__(self) -> bool:
        return "fitted_" in vars(self)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def unit_hashes(self, block: Block, n_rows: int) -> np.ndarray | None:
        """Return the hashes (rows,) of rows' groups or ids.

        The hash decides a row's cross-validation fold. The result is None if groups or ids are not
        used. The row's values then decide.

        block: rows, with their groups or ids.
        n_rows: number of rows.
        """
        return None

    def can_merge_parts(self) -> bool:
        """Return True if states of a stream's parts can be merged.

        The states cannot be merged if the feature map chooses something from the rows of each
        part. Examples are landmarks (sampled rows with which other rows are compared) and the
        width of a kernel.
        """
        mapping = feature_map(self.feature_map)
        if mapping is None or not self.merges:
            return self.merges
        draws = isinstance(mapping, Nystroem) and mapping.draws_landmarks
        return mapping.has_final_parameters and not draws

    def _fit(self, X: RowsLike, y: TargetsLike, weights: WeightsLike) -> Self:
        """Forget all learned rows, then learn rows X with targets y and weights."""
        with self.lock:
            self.check_parameters()
            rows = as_block(X, y, weights)

            # Learn in a new state, so that the estimator is unchanged if an error is raised.
            if is_dask(rows.X):
                fitted = self._learn_collections(rows)
            else:
                fitted = new_fitted_state(self)
                for block in batches(rows):
                    self._parse_and_learn(fitted, block, raise_if_empty=True)
            # `y` may be the name of the column that has the targets.
            self.fitted_ = fitted
            self.target_column_ = rows.y if isinstance(rows.y, str) else None
        return self

    def _checked_state(self) -> FittedState:
        """Return the fitted state, or a new one, after checking the parameters."""
        # Before the first row, there is no attribute `fitted_`.
        try:
            fitted = self.fitted_
        except AttributeError:
            self.check_parameters()
            return new_fitted_state(self)
        fitted.check_parameters(self)
        return fitted

    def _partial_fit(self, X: RowsLike, y: TargetsLike, weights: WeightsLike) -> Self:
        """Learn more rows X with targets y and weights.

        If an error is raised, the state is unchanged.
        """
        with self.lock:
            fitted = self._checked_state()
            # `y` may be the name of the column that has the targets. If not, the last name stays.
            rows = as_block(X, y, weights)
            target_column = rows.y if isinstance(rows.y, str) else self.target_column_
            if is_dask(rows.X):
                # A Dask collection is learned separately, in a second state.
                self._set_merged_state(fitted, self._learn_collections(rows))
            else:
                # Learn a stream in a copy, so that an error in a later batch leaves the state
                # unchanged.
                if isinstance(rows.X, TableStream):
                    fitted = fitted.copy(self)
                for block in batches(rows):
                    self._parse_and_learn(fitted, block)
                self.fitted_ = fitted
            self.target_column_ = target_column
        return self

    def _set_merged_state(self, fitted: FittedState, learned: FittedState) -> None:
        """Set the fitted state to `fitted`, with the later rows of `learned` added."""
        # Columns without names are matched by position, so they get the names of earlier rows.
        learned.names = learned.names or fitted.names
        # `merge` adds the rows of an estimator. So make one that has learned only the later rows.
        later = copy(self)
        later.fitted_ = learned
        self.fitted_ = fitted
        self.merge(later)

    def _learn_collections(self, rows: Block) -> FittedState:
        """Return the fitted state that has learned Dask collections.

        The estimator is unchanged. Raises CannotMerge if states of the estimator cannot be merged,
        because the blocks of a collection are learned separately.
        """
        if not self.can_merge_parts():
            # States merge if they have the same feature map. But Nystroem's map draws its
            # landmarks from the rows, so each block would have another map.
            if self.merges:
                raise errors.CannotMerge(
                    "every block would draw landmarks of its own; give them: nystroem(landmarks=rows), or call partial_fit "
                    "with one block after the other."
                )
            raise errors.CannotMerge(
                f"{type(self).__name__} learns one row after the other; blocks of a Dask collection are learned side by "
                f"side. Use {self.merges_as or 'one'}, whose states merge, or call partial_fit with one block after the "
                "other."
            )
        blocks = split_into_blocks(take_target_column(rows))

        # Learn all blocks with the kind of targets of the first block.
        learner = clone(self)
        first_targets = blocks[0][1]
        if first_targets is not None and self.target == "auto" and self.target_kinds:
            y = first_targets.compute()
            learner.set_params(target=parse_targets(y, len(y), self.target_kinds, "auto", None).kind)

        merged = learn_blocks(blocks, partial(_fit_clone_on_block, learner), _merge_into_copy)
        return new_fitted_state(self, merged.state_, merged.fitted_.names)

    def _parse_and_learn(self, fitted: FittedState, rows: Block, raise_if_empty: bool = False) -> None:
        block = self.parse(fitted, rows, raise_if_empty)
        if raise_if_empty and block.weights is not None and not block.weights.any():
            raise errors.InvalidWeights(
                "every weight is zero, so there is nothing to fit; pass a weight > 0 for some row."
            )
        fitted.accumulator.add(block)
        if raise_if_empty and fitted.accumulator.rows == 0:
            raise errors.nothing_to_fit_error(type(self).__name__)
        fitted.names = block.names
        if self.feature_map is not None and self.identifies_columns_by_name():
            fitted.names = None
        fitted.forget_projection()

    def parse(
        self,
        fitted: FittedState,
        rows: Block,
        raise_if_empty: bool = False,
        raise_if_no_targets: bool = True,
    ) -> Block:
        """Check rows, targets and weights, and return a Block.

        The block's columns are in the order of the first learned rows.

        fitted: fitted state of the estimator, with the names of its features.
        rows: rows, targets and weights as the caller has passed them.
        raise_if_empty: if true, raise EmptyInput if there are no rows or no features.
        raise_if_no_targets: if true, raise TargetsRequired if the method is supervised and the
            rows have no targets.
        """
        accumulator = fitted.accumulator
        block = self._read_rows(fitted, rows)
        n_rows, n_features = block.X.shape
        if raise_if_empty:
            refuse_empty_rows(block.X)
        # Raise WidthMismatch if rows were learned and had another number of features.
        # Sparse rows may become wider. The columns of a table are identified by name.
        width_differs = 0 < accumulator.n_features != n_features
        if width_differs and not block.sparse and not self._may_have_new_columns(block):
            check_n_features(n_features, accumulator.n_features, type(self).__name__)
        # A batch without rows may have no features. So may sparse rows in which all values are 0.
        lacks_features = n_rows > 0 and n_features == 0
        if lacks_features and not (block.sparse and self._may_lack_columns()):
            raise errors.EmptyInput("batch has 0 features; dense rows and mapped rows need at least one.")
        if accumulator.table_names:
            warn_if_columns_differ(accumulator, block)

        weights = None
        if rows.weights is not None:
            weights = as_weights(rows.weights, n_rows)
        reads_targets = raise_if_no_targets or rows.y is not None
        targets = None
        if reads_targets:
            targets = self._parse_targets(accumulator, rows.y, n_rows)
        # Call `unit_hashes` only if it returns hashes, to save a call when single rows come.
        hashes = None
        if rows.hashes is not None or self.folds_by == "id":
            hashes = self.unit_hashes(rows, n_rows)
        return block._replace(y=targets, weights=weights, hashes=hashes)

    def _read_rows(self, fitted: FittedState, rows: Block) -> Block:
        """Return rows with their columns in the order of the learned rows.

        Columns without names, here or in the learned rows, are matched by position. With a feature
        map that finds columns by their names, the order does not matter and stays.
        """
        # `by_name` is True if the feature map identifies columns by name.
        by_name = False
        reads_tables = False
        if self.feature_map is not None:
            by_name = self.identifies_columns_by_name()
            reads_tables = map_reads_tables(self.feature_map)
        X, names = read_rows_and_names(rows, by_name, reads_tables, fitted.names)
        block = Block(X, names=names, width_stated=rows.width_stated)

        # The first rows have no features before them, and decide the order.
        is_first = not fitted.accumulator.n_features
        if by_name or is_first:
            return block
        if names == fitted.names:
            return block
        if fitted.names is None:
            warnings.warn(
                f"X has feature names, but {type(self).__name__} was fitted without feature names: columns go by their "
                "position.",
                stacklevel=5,
            )
            return block._replace(names=None)
        # `reorder` does nothing if the block has no names. It then gets the learned names.
        return block.reorder(fitted.names)._replace(names=fitted.names)

    def _may_lack_columns(self) -> bool:
        """True if sparse rows without any column can be learned."""
        return self.feature_map is None or self.identifies_columns_by_name()

    def _may_have_new_columns(self, block: Block) -> bool:
        """True if a block may have columns that were not learned."""
        return self.identifies_columns_by_name() and bool(block.names) and block.names != default_column_names(block.X)

    def _parse_targets(self, accumulator: Accumulator, y: TargetsLike, n_rows: int) -> Targets | None:
        """Return checked targets, or None if rows are learned without targets.

        accumulator: accumulator whose kind of targets y must have.
        """
        # An unsupervised method has no kinds of targets and ignores y.
        if not self.target_kinds:
            return None
        # unlabelled="use" means that rows without targets are learned, too.
        if y is None and self.unlabelled == "use":
            return None

        if y is None:
            raise errors.TargetsRequired(
                f"{type(self).__name__} requires y to be passed, but the target y is None: it learns from "
                f"{' or '.join(self.target_kinds)} targets. Pass one target a row."
            )
        # An empty list or array does not show the kind of targets (class, numbers and so on).
        # `Targets` name their kind, so empty ones are checked below.
        if n_rows == 0 and isinstance(y, Sized) and not isinstance(y, Targets) and len(y) == 0:
            return None

        targets = parse_targets(y, n_rows, self.target_kinds, self.target or "auto", accumulator.target_kind)
        check_label_type(accumulator.labels, targets.labels)
        return targets

    def identifies_columns_by_name(self) -> bool:
        """True if a feature map identifies columns by name.

        Later batches may then have new columns.
        """
        return self.feature_map is not None and feature_map(self.feature_map).by_name

    def _rows_to_project(self, X: RowsLike) -> Block:
        """Return the rows to project, with columns in the order of the learned rows.

        Raises WidthMismatch or SchemaMismatch if the columns differ from the learned rows' columns.
        """
        fitted = self.fitted()
        block = self._read_rows(fitted, self.without_target_column(as_block(X)))

        # Check the number of features, which may differ if rows are sparse or columns have names.
        grows = block.sparse and (self.identifies_columns_by_name() or not block.width_stated)
        if not grows and not self._may_have_new_columns(block):
            check_n_features(block.features, fitted.accumulator.n_features, type(self).__name__)
        warn_if_columns_differ(fitted.accumulator, block)
        return block


def _fit_clone_on_block(estimator: Any, X: RowsLike, y: TargetsLike, weights: WeightsLike) -> Any:
    options = {}
    if weights is not None:
        options = {"sample_weight": weights}
    return clone(estimator).partial_fit(X, y, **options)


def _merge_into_copy(older: Any, newer: Any) -> Any:
    return copy(older).merge(newer)
