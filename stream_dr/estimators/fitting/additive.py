"""Base class of estimators whose states are sums over rows.

Rows may have weights, states can be merged and rows can be unlearned. Estimators that are updated
row by row (CCIPCA, IncrementalSKM) do not have this base class, and their methods have no argument
`sample_weight`.
"""

from collections.abc import Iterable
from typing import ClassVar, Self, cast

import numpy as np

from stream_dr.aliases import JsonDict
from stream_dr.errors import CannotMerge, InvalidParameter
from stream_dr.estimators.fitting import named_columns
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.estimators.fitting.inputs import GroupsLike, RowsLike, TargetsLike, WeightsLike
from stream_dr.estimators.fitting.stream_learner import new_fitted_state
from stream_dr.feature_maps import map_spec_with_defaults
from stream_dr.rows.batches import as_block, move_named_column_to_targets
from stream_dr.rows.block import Block
from stream_dr.rows.kinds import DASK, Kind, rows_kind
from stream_dr.statistics.protocol import AdditiveState
from stream_dr.statistics.row_hashes import group_hashes


class AdditiveEstimator(Estimator):
    """Base class of estimators whose states are sums over rows.

    Rows may have weights, states can be merged and rows can be unlearned.
    """

    additive: ClassVar[bool] = True
    merges: ClassVar[bool] = True

    # A splitter of a cross-validation asks for `groups`, too. It alone gets them, unless the caller
    # calls `set_fit_request(groups=True)`.
    __metadata_request__fit: ClassVar[dict[str, bool]] = {"groups": False}
    __metadata_request__partial_fit: ClassVar[dict[str, bool]] = {"groups": False}

    def fit(
        self, X: RowsLike, y: TargetsLike = None, sample_weight: WeightsLike = None, *, groups: GroupsLike = None
    ) -> Self:
        """Forget all learned rows, then learn rows X (rows, features).

        y: targets (rows,).
        sample_weight: weights (rows,).
        groups: group (rows,) of each row, if the estimator has the parameter `folds`. Rows of one
            group are in the same fold.
        """
        return self._fit(X if groups is None else self.block_with_group_hashes(X, groups), y, sample_weight)

    def partial_fit(
        self, X: RowsLike, y: TargetsLike = None, sample_weight: WeightsLike = None, *, groups: GroupsLike = None
    ) -> Self:
        """Learn more rows X (rows, features).

        If an error is raised, the state is unchanged.

        y: targets (rows,).
        sample_weight: weights (rows,).
        groups: group (rows,) of each row, if the estimator has the parameter `folds`. Rows of one
            group are in the same fold.
        """
        return self._partial_fit(X if groups is None else self.block_with_group_hashes(X, groups), y, sample_weight)

    def block_with_group_hashes(self, X: RowsLike, groups: Iterable[object]) -> Block:
        """Return rows as a Block with hashes of their groups.

        X: rows (rows, features).
        groups: group (rows,) of each row.

        Raises InvalidParameter if the estimator does not store rows in cross-validation folds, or
        if X is read batch by batch, as streams of tables and Dask collections are.
        """
        if not self.fold_count:
            raise InvalidParameter(
                f"groups were given, but {type(self).__name__} does not store rows in folds. Set folds=5, if it has this "
                "parameter."
            )
        names = np.asarray(groups)
        if names.ndim != 1:
            raise InvalidParameter(f"groups={groups!r}; it must be a list or array of one group a row.")
        block = as_block(X)
        if (kind := rows_kind(block.X)) is Kind.STREAM or kind in DASK:
            raise InvalidParameter(
                "groups were given with rows that are read batch by batch: pass one batch a call, or Blocks with ids to an "
                "estimator of folds_by='id'."
            )
        return block._replace(hashes=group_hashes(names.tolist()))

    def merge(self, other: Estimator) -> Self:
        """Add another estimator's learned rows to this estimator.

        `other` is unchanged. After the merge, components have the signs that this estimator's
        components had before. Columns are matched by position. Either both estimators have
        column names or neither has. The shorter list of names must be the beginning of the longer
        list.

        Raises CannotMerge if the estimators differ in class, parameters or column names.
        """
        if type(other) is not type(self) or _comparable_parameters(other) != _comparable_parameters(self):
            raise CannotMerge(
                f"{other!r} cannot be merged into {self!r}: merge states of one estimator and parameters."
            )

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
                names = named_columns.joint_names(mine.names, their_names)
            state = cast(AdditiveState, mine.accumulator.freeze()).merge(their_state)
            self.fitted_ = new_fitted_state(self, state, names)
            self.fitted_.shown = mine.shown
        return self

    def unlearn(
        self, X: RowsLike, y: TargetsLike = None, sample_weight: WeightsLike = None, *, groups: GroupsLike = None
    ) -> Self:
        """Remove rows X (rows, features) that were learned before.

        The targets and weights must be those with which the rows were learned. Raises
        CannotUnlearn if decay < 1, or if the rows cannot be removed.

        y: targets (rows,).
        sample_weight: weights (rows,).
        groups: group (rows,) of each row, with which the rows were learned.
        """
        with self.lock:
            fitted = self.fitted()
            fitted.check_learning_parameters_unchanged(self)

            rows = as_block(X if groups is None else self.block_with_group_hashes(X, groups), y, sample_weight)
            block, _ = self.parse(fitted, move_named_column_to_targets(rows))
            fitted.accumulator.remove(block)

            # Projections of the rows before the removal are no longer valid.
            fitted.forget_projection()
            fitted.refined = None
        return self


def _comparable_parameters(estimator: Estimator) -> JsonDict:
    """Return an estimator's parameters, with all entries of its feature map."""
    parameters = estimator.get_params()
    if estimator.feature_map is not None:
        parameters["feature_map"] = map_spec_with_defaults(estimator.feature_map)
    return parameters
