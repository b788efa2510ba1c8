"""Base class of estimators that predict targets from components."""

from abc import abstractmethod
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.metaestimators import available_if

from stream_dr.estimators.fitting.closed_form import ClosedForm
from stream_dr.estimators.fitting.inputs import GroupsLike, RowsLike, TargetsLike, WeightsLike
from stream_dr.estimators.fitting.not_fitted import NotFitted
from stream_dr.projection import Linear, Mapped
from stream_dr.readout import Readout


def _may_predict_labels(estimator: "Predictor") -> bool:
    """True unless targets are numbers. Before the first batch, they may be labels."""
    return estimator.known_target_kind() != "continuous"


class Predictor(ClosedForm):
    """Base class of estimators whose projection has a `Readout` to predict targets."""

    @abstractmethod
    def predict(self, X: RowsLike) -> np.ndarray:
        """Return the predicted targets of rows X (rows, features)."""

    def partial_fit(
        self,
        X: RowsLike,
        y: TargetsLike = None,
        sample_weight: WeightsLike = None,
        classes: ArrayLike | None = None,
        *,
        groups: GroupsLike = None,
    ) -> Self:
        """Learn more rows X (rows, features) with targets.

        If an error is raised, the state is unchanged.

        y: targets (rows,), or (rows, k) for k columns of numbers.
        sample_weight: weights (rows,).
        classes: ignored, because new labels may come at any time. The argument exists for code
            written for scikit-learn's classifiers.
        groups: group (rows,) of each row, as in `fit`.
        """
        return super().partial_fit(X, y, sample_weight, groups=groups)

    @available_if(_may_predict_labels)
    def decision_function(self, X: RowsLike) -> np.ndarray:
        """Return the scores (rows, labels) float64 of all labels, in the order of `classes_`.

        With one label a row, `predict` returns the label of the highest score. If there are two
        such labels, the result is (rows,), the second label's score minus the first label's score.
        LDA and ClassMeans return logarithms of posterior probabilities, up to a term that all
        classes share. Other estimators return the predicted indicators of the labels, which are
        about 1 for rows with the label and 0 for other rows.

        Raises NotFitted, WidthMismatch, NotFinite.
        """
        readout, scores = self._score_targets(X)
        return readout.decisions(scores)

    def _score_targets(self, X: RowsLike) -> tuple[Readout, np.ndarray]:
        """Return the readout, and the scores (rows, k) of the k labels or target columns.

        Raises NotFitted, WidthMismatch, NotFinite.
        """
        projection = self.linear_projection()
        readout = fitted_readout(projection)
        return readout, self.project(projection.target_score_projection(), X)

    def known_target_kind(self) -> str | None:
        """Return the kind of targets: the kind learned, else the kind set. None if not known."""
        if "fitted_" in vars(self) and self.fitted_.accumulator.target_kind is not None:
            return self.fitted_.accumulator.target_kind
        return None if self.target == "auto" else self.target

    def _readout_or_raise(self) -> Readout:
        return fitted_readout(self.linear_projection())


def fitted_readout(projection: Linear | Mapped) -> Readout:
    """Return the readout of a projection.

    Raises NotFitted if no target was learned with a weight above 0.
    """
    if projection.readout is None or not len(projection.readout.offset):
        raise NotFitted("no target has been learned with a weight above 0: pass rows with targets first.")
    return projection.readout
