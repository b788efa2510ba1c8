"""The learned part of an estimator.

An estimator has one FittedState, which is replaced as a whole. The FittedState stores the values
of the parameters that its accumulator was built with (`Estimator.fixed`). If these parameters
change, they no longer describe the state. `set_params` before a new `fit` must stay allowed. So
the change raises an error only when the state is used. This is when rows are learned or the state
is solved, merged or saved.
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
    """Parameters of the accumulator, which may not change after rows were learned."""

    def accumulator(self, state: State | None = None) -> Accumulator:
        """Return an accumulator that is empty or continues from `state`."""
        ...

    def check_parameters(self) -> None:
        """Raise InvalidParameter if a parameter is outside its range."""
        ...


class FittedState:
    """Accumulator, feature names and solutions of a fitted estimator.

    Attributes
    ----------
    accumulator : Accumulator
        Accumulator that new rows are added to.
    names : tuple of str or None
        Names of the features.
    fixed_parameters : dict
        Parameters that the accumulator was built with.
    projection : Projection or None
        Projection, cached until more rows are learned.
    refined : Projection or None
        Projection computed by `refine`.
    shown : Projection or None
        Last projection that was returned to the user. It stays when more rows are learned, because
        the next projection takes over its signs and order. It takes 8 · features · components
        bytes. A projection that compares rows with sampled rows (landmarks) also takes the size of
        the sample.
    neighbour_search : KNeighborsClassifier or None
        Fitted scikit-learn classifier of KNearest, for its current sample.
    warned_n_components : int or None
        Value of n_components for which FewerComponents was warned.
    """

    def __init__(
        self, accumulator: Accumulator, names: tuple[str, ...] | None = None, fixed_parameters: JsonDict | None = None
    ) -> None:
        self.accumulator = accumulator
        self.names = names
        self.fixed_parameters = fixed_parameters or {}
        self._now = attrgetter(*self.fixed_parameters) if fixed_parameters else None
        values = tuple(self.fixed_parameters.values())
        # For a single name, attrgetter returns the value and not a tuple of one value.
        self._then = values[0] if len(values) == 1 else values

        # Identities of the estimator's attributes when they were last checked, and the attributes.
        self._checked: tuple[tuple[int, ...], tuple[object, ...]] = ((), ())

        self.projection: Projection | None = None
        self.refined: Projection | None = None
        self.shown: Projection | None = None
        self.neighbour_search: Any = None
        self.warned_n_components: int | float | None = None

    def cache_projection(self, solved: Projection, covariance_product: Product) -> Projection:
        """Cache a projection until more rows are learned, and return it.

        Its components get the signs and order of the last projection that was returned to the
        user. Components that are updated row by row (solution "recurrence") are not changed,
        because each row changes them only a little.

        solved: the new projection.
        covariance_product: function that multiplies columns by the rows' scatter. The components
            of the two projections are compared by it (solve/orientation.py).
        """
        if solved is not self.shown and solved.solution != "recurrence":
            solved = self.shown = oriented(solved, self.shown, covariance_product)
        self.projection = solved.prepared() if isinstance(solved, Linear) else solved
        return self.projection

    def copy(self, estimator: AccumulatingEstimator) -> "FittedState":
        """Return a copy. Rows that the copy learns do not change this object."""
        copied = FittedState(estimator.accumulator(self.accumulator.freeze()), self.names, self.fixed_parameters)
        copied.shown = self.shown
        copied.warned_n_components = self.warned_n_components
        return copied

    def check_parameters(self, estimator: AccumulatingEstimator) -> None:
        """Raise InvalidParameter if a parameter is out of range or may not change any more.

        Nothing is checked again while the estimator's attributes are the same objects.
        """
        attributes = tuple(vars(estimator).values())
        identities = tuple(map(id, attributes))
        if identities != self._checked[0]:
            estimator.check_parameters()
            self.check_parameters_unchanged(estimator)
            # The attributes are held, so that no other object can have their identities.
            self._checked = (identities, attributes)

    def check_parameters_unchanged(self, estimator: AccumulatingEstimator) -> None:
        """Raise InvalidParameter if the estimator's parameters have changed.

        Only the parameters that the accumulator was built with are compared.
        """
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
    """Return a FittedState for an estimator with its current parameters.

    The accumulator is empty, or continues from `state`.
    """
    # The caller may change the dict of a feature map later, so the values are copied.
    fixed_parameters = {name: deepcopy(getattr(estimator, name)) for name in estimator.fixed}
    return FittedState(estimator.accumulator(state), names, fixed_parameters)
