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

from abc import abstractmethod
from copy import deepcopy
from operator import attrgetter
from threading import RLock
from typing import Any, ClassVar, Self, cast

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils import Tags

from stream_dr import errors
from stream_dr.aliases import FileName, JsonDict
from stream_dr.estimators.fitting.named_columns import joint_names
from stream_dr.estimators.fitting.parameters import NamedParameters
from stream_dr.estimators.fitting.sklearn_bases import BaseEstimator
from stream_dr.projection import Linear, Projection
from stream_dr.rows.batches import drop_column
from stream_dr.rows.block import Block
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
        self.accumulator = accumulator
        self.names = feature_names
        self.fixed_parameters = fixed_parameters or {}
        self._read_fixed_parameters = attrgetter(*self.fixed_parameters) if fixed_parameters else None
        values = tuple(self.fixed_parameters.values())
        # Store a single value itself and not a tuple of one value, as attrgetter returns it.
        self._fixed_values = values[0] if len(values) == 1 else values

        # Ids (`id`) and values of the estimator's attributes at the last check of parameters.
        self._last_checked_attributes: tuple[tuple[int, ...], tuple[object, ...]] = ((), ())

        self.projection: Projection | None = None
        self.version = 0
        self.refined: Projection | None = None
        self.shown: Projection | None = None
        self.neighbour_search: Any = None
        self.last_warned_n_components: int | float | None = None

    def forget_projection(self) -> None:
        """Delete solutions that are cached until more rows are learned."""
        self.projection = None
        self.neighbour_search = None
        self.version += 1

    def orient_and_cache_projection(
        self, projection: Projection, multiply_by_scatter: MultiplyByScatter, version: int
    ) -> Projection:
        """Orient and cache a new projection, and return it.

        The projection is cached until more rows are learned. It is not cached if rows were learned
        while it was solved. The components get the signs and
        order of the last projection that was returned to the user. Components of solution
        "recurrence" are not changed, because these components change only a little with each row.

        projection: the new projection.
        multiply_by_scatter: function that multiplies columns by the rows' scatter. The components
            of the new and the last projection are compared with this function.
        version: `version` when the projection's state was frozen.
        """
        if projection is not self.shown and projection.solution != "recurrence":
            projection = self.shown = orient_components(projection, self.shown, multiply_by_scatter)
        projection = projection.with_offset() if isinstance(projection, Linear) else projection
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

        A value is invalid if it is outside the parameter's range. For a parameter of the
        accumulator, a value is also invalid if it has changed since rows were learned.
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
        if self._read_fixed_parameters is None or self._read_fixed_parameters(estimator) == self._fixed_values:
            return

        for name, value in self.fixed_parameters.items():
            now = getattr(estimator, name)
            # Name the parameter `folds` in the message, because the user sets `folds`.
            name = "folds" if name == "fold_count" else name
            if now != value:
                raise errors.InvalidParameter(
                    f"{name}={now!r}; what {type(estimator).__name__} has learned was made with {name}={value!r}. Set it "
                    "back, or call fit with the rows again."
                )


def new_fitted_state(
    estimator: "StreamLearner", state: State | None = None, feature_names: tuple[str, ...] | None = None
) -> FittedState:
    """Return a FittedState for an estimator with its current parameters.

    The accumulator is empty, or continues from `state`.
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
        """Add another learner's rows, of the same class and parameters.

        `other` is unchanged. Columns are matched by position.
        """
        # Release the lock of `other` before taking the lock of `self`.
        # Otherwise two threads that merge a into b and b into a would wait for each other for ever.
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
        return rows if name in features else drop_column(rows, name)

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
