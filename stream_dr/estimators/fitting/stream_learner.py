"""Base class of everything that learns rows with an accumulator."""

from abc import abstractmethod
from threading import RLock
from typing import ClassVar, Self, cast

import numpy as np
from sklearn.utils import Tags

from stream_dr.aliases import FileName, JsonDict
from stream_dr.errors import error_for_unknown_parameter
from stream_dr.estimators.fitting.fitted_state import FittedState
from stream_dr.estimators.fitting.parameter_checks import NamedParameters
from stream_dr.estimators.fitting.sklearn_bases import BaseEstimator
from stream_dr.rows.batches import drop_column
from stream_dr.rows.block import Block
from stream_dr.statistics.protocol import Accumulator, State


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
        if error := error_for_unknown_parameter(type(self).__name__, params, self.get_params()):
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

    def without_target_column(self, rows: Block) -> Block:
        """Return rows without the column that had the targets.

        A column that was learned as a feature is not dropped.
        """
        name = self.target_column_
        if name is None:
            return rows
        fitted = self.fitted()
        features = fitted.accumulator.table_names or fitted.names or ()
        return rows if name in features else rows._replace(X=drop_column(rows.X, name))

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
