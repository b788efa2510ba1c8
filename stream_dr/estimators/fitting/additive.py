"""AdditiveEstimator: the interface of estimators whose state is a sum.

Such an estimator takes weights, and what it learned can be added to another's or taken out again.
Recurrences do not have these arguments at all, so no signature promises what is then refused.
"""

from typing import ClassVar, Self, cast

from stream_dr.errors import CannotMerge
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.estimators.fitting.fitted_state import new_fitted_state
from stream_dr.estimators.fitting.inputs import RowsLike, TargetsLike, WeightsLike
from stream_dr.estimators.fitting.mapping import same_parameters
from stream_dr.rows.batches import as_block, split_targets
from stream_dr.statistics.protocol import AdditiveState


class AdditiveEstimator(Estimator):
    """Base of estimators whose state is a sum: they take weights, merge and unlearn."""

    additive: ClassVar[bool] = True
    merges: ClassVar[bool] = True

    def fit(self, X: RowsLike, y: TargetsLike = None, sample_weight: WeightsLike = None) -> Self:
        """Forget everything, then learn rows X (rows, features).

        With targets y and weights (rows,).
        """
        return self._fit(X, y, sample_weight)

    def partial_fit(self, X: RowsLike, y: TargetsLike = None, sample_weight: WeightsLike = None) -> Self:
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

        mine = self.fitted()
        theirs = other.fitted()
        mine.check(self)
        theirs.check(other)

        names = max(mine.names or (), theirs.names or (), key=len) or None
        if any(some != (names or ())[: len(some)] for some in (mine.names, theirs.names) if some is not None):
            raise CannotMerge(
                f"states of features {theirs.names} and {mine.names} cannot be merged: learn both in one order of columns."
            )

        state = cast(AdditiveState, mine.accumulator.freeze()).merge(theirs.accumulator.freeze())
        self.fitted_ = new_fitted_state(self, state, names)
        self.fitted_.shown = mine.shown
        return self

    def unlearn(self, X: RowsLike, y: TargetsLike = None, sample_weight: WeightsLike = None) -> Self:
        """Remove rows X (rows, features) learned before with these targets and weights.

        With decay < 1 they are taken as the newest rows learned, in their order. Raises
        CannotUnlearn.
        """
        fitted = self.fitted()
        fitted.check(self)
        block, _ = self.parse(fitted, split_targets(as_block(X, y, sample_weight)))
        fitted.accumulator.remove(block)
        fitted.projection = None
        fitted.refined = None
        return self
