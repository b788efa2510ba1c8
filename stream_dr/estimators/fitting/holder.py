"""Holder: what fit makes; an estimator's learned side, swapped as one reference.

Parameters that an accumulator was made with (`Estimator.fixed`) are remembered beside it: changed afterwards, they would
describe a state that is not there, so they are refused wherever the state is learned into, solved, merged or saved.

Why this way: `set_params` before a new `fit` must stay legal, so it cannot refuse; the use of what was learned can.
"""

from copy import deepcopy
from operator import attrgetter
from typing import Any

from stream_dr.errors import InvalidParameter
from stream_dr.projection import Linear, Projection
from stream_dr.solve.orientation import Product, oriented


class Holder:
    """The accumulator, the feature names, the projection cached until the next update, and the refined one.

    shown: the projection shown last, kept over updates, for the next one's components keep its signs and order (bytes of one
    projection: 8 · features · components, for one by landmarks those of the sample).
    """

    def __init__(
        self, accumulator: Any, names: tuple[str, ...] | None = None, made_with: dict[str, Any] | None = None
    ) -> None:
        self.accumulator = accumulator
        self.names = names
        self.made_with = made_with or {}
        self._now = attrgetter(*self.made_with) if made_with else None
        values = tuple(self.made_with.values())
        self._then = values[0] if len(values) == 1 else values  # as attrgetter gives them
        self.projection: Projection | None = None
        self.refined: Projection | None = None
        self.shown: Projection | None = None
        self.searched: Any = None  # KNearest's search over its sample
        self.told_fewer: int | None = None  # the n_components that there were fewer of, once that was said

    def show(self, solved: Projection, spread: Product) -> Projection:
        """Keep a projection until the next update, its components with the signs and order of the one shown before it.

        spread: what they are compared by (solve/orientation.py). A recurrence's components move smoothly by themselves.
        """
        if solved is not self.shown and hasattr(solved, "oriented") and solved.solution != "recurrence":
            solved = self.shown = oriented(solved, self.shown, spread)
        self.projection = solved.prepared() if isinstance(solved, Linear) else solved
        return self.projection

    def copy(self, estimator: Any) -> "Holder":
        """One that goes on from here, while this stays as it is. Costs a copy of the state."""
        copied = Holder(estimator.accumulator(self.accumulator.freeze()), self.names, self.made_with)
        copied.shown, copied.told_fewer = self.shown, self.told_fewer
        return copied

    def check(self, estimator: Any) -> None:
        """Raise InvalidParameter where the estimator's parameters are no longer those its accumulator was made with."""
        if self._now is None or self._now(estimator) == self._then:  # one comparison a one-row batch
            return
        for name, value in self.made_with.items():
            now = getattr(estimator, name)
            if now != value:
                raise InvalidParameter(
                    f"{name}={now!r}; what {type(estimator).__name__} has learned was made with {name}={value!r}. Set it "
                    "back, or call fit with the rows again."
                )


def held(estimator: Any, state: Any = None, names: tuple[str, ...] | None = None) -> Holder:
    """A Holder for an estimator with its parameters of now: empty, or going on from `state`."""
    made_with = {name: deepcopy(getattr(estimator, name)) for name in estimator.fixed}  # a feature map is a dict
    return Holder(estimator.accumulator(state), names, made_with)
