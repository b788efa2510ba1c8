"""FittedState: what fit makes, the learned side of an estimator.

It is swapped as one reference. It remembers the parameters that its accumulator was built with
(`Estimator.fixed`). If they change, they no longer describe the state. `set_params` before a new
`fit` must stay legal, so the change is refused only where the state is used: learned into, solved,
merged or saved.
"""

from copy import deepcopy
from operator import attrgetter
from typing import Any, ClassVar, Protocol

from stream_dr.aliases import JsonDict
from stream_dr.errors import InvalidParameter
from stream_dr.projection import Linear, Projection
from stream_dr.solve.orientation import Product, oriented
from stream_dr.statistics.protocol import Accumulator, State


class AccumulatingEstimator(Protocol):
    """An estimator or classifier that learns into an accumulator."""

    fixed: ClassVar[tuple[str, ...]]
    """Parameters of the accumulator, which may not change once rows were learned."""

    def accumulator(self, state: State | None = None) -> Accumulator:
        """Return a new accumulator, or one that continues from `state`."""
        ...


class FittedState:
    """Accumulator, feature names and solutions of a fitted estimator.

    Attributes
    ----------
    accumulator : Accumulator
        State that is learned into.
    names : tuple of str or None
        Names of the features.
    fixed_parameters : dict
        Parameters that the accumulator was made with.
    projection : Projection or None
        Projection cached until the next update.
    refined : Projection or None
        Projection that `refine` found.
    shown : Projection or None
        Projection shown last, kept over updates, because the next one's components keep its signs
        and order. It takes 8 · features · components bytes, and those of the sample for a
        projection by landmarks.
    neighbour_search : KNeighborsClassifier or None
        KNearest's search over its sample.
    warned_n_components : int or None
        The n_components for which FewerComponents was warned.
    """

    def __init__(
        self, accumulator: Accumulator, names: tuple[str, ...] | None = None, fixed_parameters: JsonDict | None = None
    ) -> None:
        self.accumulator = accumulator
        self.names = names
        self.fixed_parameters = fixed_parameters or {}
        self._now = attrgetter(*self.fixed_parameters) if fixed_parameters else None
        values = tuple(self.fixed_parameters.values())
        # attrgetter returns a bare value for one name.
        self._then = values[0] if len(values) == 1 else values

        self.projection: Projection | None = None
        self.refined: Projection | None = None
        self.shown: Projection | None = None
        self.neighbour_search: Any = None
        self.warned_n_components: int | float | None = None

    def cache_projection(self, solved: Projection, covariance_product: Product) -> Projection:
        """Cache a projection until the next update, and return it.

        Its components get the signs and order of the projection shown before. covariance_product:
        Product by which they are compared (solve/orientation.py). A recurrence's components move
        smoothly by themselves and stay as they are.
        """
        if solved is not self.shown and solved.solution != "recurrence":
            solved = self.shown = oriented(solved, self.shown, covariance_product)
        self.projection = solved.prepared() if isinstance(solved, Linear) else solved
        return self.projection

    def copy(self, estimator: AccumulatingEstimator) -> "FittedState":
        """Return a fitted state that continues from here, while this one stays as it is.

        Copies the state.
        """
        copied = FittedState(estimator.accumulator(self.accumulator.freeze()), self.names, self.fixed_parameters)
        copied.shown = self.shown
        copied.warned_n_components = self.warned_n_components
        return copied

    def check(self, estimator: AccumulatingEstimator) -> None:
        """Raise InvalidParameter if the estimator's parameters have changed.

        Only parameters that the accumulator was made with count.
        """
        # One comparison, because this runs for every batch of one row.
        if self._now is None or self._now(estimator) == self._then:
            return

        for name, value in self.fixed_parameters.items():
            now = getattr(estimator, name)
            if now != value:
                raise InvalidParameter(
                    f"{name}={now!r}; what {type(estimator).__name__} has learned was made with {name}={value!r}. Set it "
                    "back, or call fit with the rows again."
                )


def new_fitted_state(
    estimator: AccumulatingEstimator, state: State | None = None, names: tuple[str, ...] | None = None
) -> FittedState:
    """Return a FittedState for an estimator and its current parameters.

    It is empty, or continues from `state`.
    """
    # A feature map is a dict that the caller may change.
    fixed_parameters = {name: deepcopy(getattr(estimator, name)) for name in estimator.fixed}
    return FittedState(estimator.accumulator(state), names, fixed_parameters)
