"""Base class of estimators that learn rows after an optional feature map, without folds."""

from abc import abstractmethod
from typing import Generic, TypeVar, cast

from stream_dr.estimators.fitting import mapping
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.projection import Projection
from stream_dr.statistics.protocol import Accumulator, State

InnerState = TypeVar("InnerState", bound=State)
"""State of the mapped rows, or of the rows themselves if there is no feature map."""


class MappedMethod(Estimator, Generic[InnerState]):
    """Base class that adds the feature map to an estimator.

    A subclass learns and projects mapped rows only. Without a feature map, these are the rows
    themselves.
    """

    def accumulator(self, state: State | None = None) -> Accumulator:
        """Return an accumulator of rows before the feature map.

        state: state from which the accumulator continues. None means an empty accumulator.
        """
        return mapping.make_accumulator(self.feature_map, self.inner_accumulator, state)

    def solve(self, state: State) -> Projection:
        """Return the projection computed from `state`, without changing anything."""
        inner = cast(InnerState, mapping.mapped_state_of_all_folds(state))
        return mapping.prepend_feature_map(state, self.solve_inner(inner))

    def state_bytes(self, n_features: int, n_targets: int) -> int:
        """Return the largest size of a state in bytes, including its feature map."""
        return mapping.max_bytes_with_map(self.feature_map, self.inner_bytes, n_features, n_targets)

    @abstractmethod
    def inner_accumulator(self, state: InnerState | None) -> Accumulator:
        """Return an accumulator of mapped rows."""

    @abstractmethod
    def solve_inner(self, state: InnerState) -> Projection:
        """Return the projection of mapped rows."""

    @abstractmethod
    def inner_bytes(self, n_features: int, n_targets: int) -> int:
        """Return the size of a state of mapped rows in bytes."""
