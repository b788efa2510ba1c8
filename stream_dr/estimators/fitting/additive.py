"""AdditiveEstimator: the face of estimators whose state is a sum.

Such an estimator takes weights, and what it learned can be added to another's or taken out again; the work is the state's.

Why this way: the recurrences do not have these arguments at all, so no signature promises what is then refused.
"""

from typing import Any, ClassVar, Self

from stream_dr.errors import CannotMerge
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.estimators.fitting.holder import held
from stream_dr.estimators.fitting.mapping import same_parameters
from stream_dr.rows.batches import as_block, split


class AdditiveEstimator(Estimator):
    """Base of estimators whose state is a sum: they take weights, merge and unlearn."""

    additive: ClassVar[bool] = True
    merges: ClassVar[bool] = True

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Forget everything, then learn rows X (rows, features) with targets y and weights (rows,)."""
        return self._fit(X, y, sample_weight)

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Go on learning rows X (rows, features), targets y, weights (rows,). The state is unchanged on error."""
        return self._partial_fit(X, y, sample_weight)

    def merge(self, other: Estimator) -> Self:
        """Add what `other` has learned to self, whose components keep their signs; `other` is left alone.

        Columns go by their place, so where both have names, one's are the other's or their beginning. Raises CannotMerge.
        """
        if type(other) is not type(self) or not same_parameters(other, self):
            raise CannotMerge(
                f"{other!r} cannot be merged into {self!r}: merge states of one estimator and parameters."
            )
        mine, theirs = self.holder(), other.holder()
        mine.check(self)
        theirs.check(other)
        names = max(mine.names or (), theirs.names or (), key=len) or None
        if any(given != (names or ())[: len(given or ())] for given in (mine.names, theirs.names) if given is not None):
            raise CannotMerge(
                f"states of features {theirs.names} and {mine.names} cannot be merged: learn both in one order of columns."
            )
        state = mine.accumulator.freeze().merge(theirs.accumulator.freeze())
        self.holder_ = held(self, state, names)
        self.holder_.shown = mine.shown
        return self

    def unlearn(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Take rows X (rows, features), learned before with these targets and weights, out again. Raises CannotUnlearn.

        With decay < 1 they are taken to be the newest rows learned, in their order.
        """
        holder = self.holder()
        holder.check(self)
        block, _ = self.parse(holder, split(as_block(X, y, sample_weight)))
        holder.accumulator.remove(block)
        holder.projection = holder.refined = None
        return self
