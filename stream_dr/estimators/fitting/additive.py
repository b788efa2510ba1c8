"""AdditiveEstimator: the interface of estimators whose state is a sum.

Such an estimator takes weights, and what it learned can be added to another's or taken out again.
Recurrences do not have these arguments at all, so no signature promises what is then refused.
"""

from typing import Any, ClassVar, Self

from stream_dr.errors import CannotMerge
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.estimators.fitting.holder import new_holder
from stream_dr.estimators.fitting.mapping import same_parameters
from stream_dr.rows.batches import as_block, split_targets


class AdditiveEstimator(Estimator):
    """Base of estimators whose state is a sum: they take weights, merge and unlearn."""

    additive: ClassVar[bool] = True
    merges: ClassVar[bool] = True

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Forget everything, then learn rows X (rows, features).

        With targets y and weights (rows,).
        """
        return self._fit(X, y, sample_weight)

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn more rows X (rows, features), targets y, weights (rows,).

        The state is unchanged on error.
        """
        return self._partial_fit(X, y, sample_weight)

    def merge(self, other: Estimator) -> Self:
        """Add what `other` has learned to self. `other` is unchanged.

        Components keep self's signs. Columns are matched by place. If both have names, those of
        one must be those of the other or their beginning. Raises CannotMerge.
        """
        if type(other) is not type(self) or not same_parameters(other, self):
            raise CannotMerge(
                f"{other!r} cannot be merged into {self!r}: merge states of one estimator and parameters."
            )

        mine = self.holder()
        theirs = other.holder()
        mine.check(self)
        theirs.check(other)

        names = max(mine.names or (), theirs.names or (), key=len) or None
        if any(some != (names or ())[: len(some)] for some in (mine.names, theirs.names) if some is not None):
            raise CannotMerge(
                f"states of features {theirs.names} and {mine.names} cannot be merged: learn both in one order of columns."
            )

        state = mine.accumulator.freeze().merge(theirs.accumulator.freeze())
        self.holder_ = new_holder(self, state, names)
        self.holder_.shown = mine.shown
        return self

    def unlearn(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Remove rows X (rows, features) learned before with these targets and weights.

        With decay < 1 they are taken as the newest rows learned, in their order. Raises
        CannotUnlearn.
        """
        holder = self.holder()
        holder.check(self)
        block, _ = self.parse(holder, split_targets(as_block(X, y, sample_weight)))
        holder.accumulator.remove(block)
        holder.projection = None
        holder.refined = None
        return self
