"""Base class of methods that predict targets by regression on the components.

Attributes have the names of scikit-learn's cross_decomposition. The method inverts A = a·Cxx + ρI,
where Cxx (features, features) is the scatter of the rows and a and ρ are numbers that depend on
the ridge. Components w_i are uncorrelated in A, so each component explains its own part of the
targets. `y_loadings_` are q_i = Cxyᵀ w_i / w_iᵀ A w_i, where Cxy is the cross-scatter of rows and
targets. The predicted targets are ȳ + Σ z_i q_i, with the mean ȳ of the targets and a row's scores
z_i. With all components of a two-stage method this is ridge regression of every target. With fewer
components it is reduced-rank regression [mathematics §10].
"""

from abc import abstractmethod
from itertools import compress
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import ClassifierTags, Tags

from stream_dr.errors import EmptyInput, InvalidParameter, WidthMismatch
from stream_dr.estimators.fitting.closed_form import ClosedForm
from stream_dr.estimators.fitting.inputs import RowsLike, TargetsLike, WeightsLike
from stream_dr.estimators.fitting.label_column import one_label_a_row
from stream_dr.estimators.fitting.moments import Moments
from stream_dr.estimators.fitting.not_fitted import NotFitted
from stream_dr.readout import TARGETS, Readout
from stream_dr.rows.batches import as_block, split_targets
from stream_dr.rows.block import as_weights, row_weights
from stream_dr.statistics.protocol import Accumulator
from stream_dr.targets.label_codes import label_array
from stream_dr.targets.targets import Targets


class TargetRegression(ClosedForm):
    """Base of the methods that predict targets by regression on their components.

    With `target="class"` scikit-learn treats the estimator as a classifier and stratifies its
    cross-validation folds.

    Attributes
    ----------
    coef_ : ndarray (targets, features), float64
        Coefficients. Predicted targets are (X − mean_) · coef_ᵀ + intercept_. For labels, a target
        is the indicator of a label, 1 for rows with the label and 0 for other rows.
    intercept_ : ndarray (targets,), float64
        Means of the targets.
    x_loadings_ : ndarray (features, components), float64
        Change of the features per unit of each component, by least squares.
    y_loadings_ : ndarray (targets, components), float64
        Change of the targets per unit of each component.
    """

    def predict(self, X: RowsLike) -> np.ndarray:
        """Return the predicted targets of rows X (rows, features).

        (X − mean_) · coef_ᵀ + intercept_ predicts numbers. If the targets are labels, it predicts
        an indicator for each label, which is about 1 for rows with the label and 0 for other rows.
        The result depends on the kind of targets learned:

        - Numbers: the predicted numbers (rows,), or (rows, k) for k columns.
        - One label a row: the label (rows,) with the highest indicator.
        - Several labels a row: (rows, labels) int64, in the order of `classes_`, 1 for indicators
          of at least a half and 0 for others.

        Raises NotFitted, WidthMismatch, NotFinite.
        """
        projection = self.linear_projection()
        return self._readout().predict(self.project(projection.scoring(), X))

    def partial_fit(
        self, X: RowsLike, y: TargetsLike = None, sample_weight: WeightsLike = None, classes: ArrayLike | None = None
    ) -> Self:
        """Learn more rows X (rows, features), targets y, weights (rows,).

        If an error is raised, the state is unchanged. `classes` is ignored, because new labels may
        come at any time. The argument exists for code written for scikit-learn's classifiers.
        """
        return super().partial_fit(X, y, sample_weight)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # For classifiers, scikit-learn stratifies the folds of cross-validation.
        if self.target == "class":
            tags.estimator_type = "classifier"
            tags.classifier_tags = ClassifierTags()
        return tags

    def score(self, X: RowsLike, y: TargetsLike, sample_weight: WeightsLike = None) -> float:
        """Return how well rows X (rows, features) are predicted, as in scikit-learn.

        For numbers the score is R², the mean over columns. For labels it is the share of rows
        whose label, or whole set of labels, is predicted.

        Parameters
        ----------
        X : rows (rows, features)
            Rows to predict.
        y : array (rows,) or (rows, k)
            True targets, in the form that `fit` takes. Rows without a target are left out.
        sample_weight : array (rows,) or None
            Weight of each row.

        Raises
        ------
        EmptyInput
            If no row has a target and a weight above 0.
        InvalidTargets
            If y is not of the kind learned. Errors of `predict` are raised, too.
        """
        # The import takes a second, so only callers of `score` wait for it.
        from sklearn.metrics import r2_score

        block = split_targets(as_block(X, y, sample_weight))
        predicted = self.predict(block.X)
        targets = self._parse_targets(self.fitted().accumulator, block.y, len(predicted))
        weights = row_weights(as_weights(block.weights, len(predicted)), len(predicted))
        there = weights > 0 if targets is None or targets.present is None else (weights > 0) & targets.present
        if targets is None or not there.any():
            raise EmptyInput(
                "no row has a target and a weight above 0: there is nothing to score. Pass rows that have."
            )

        targets, predicted, weights = targets.take(there), predicted[there], weights[there]
        if targets.values is not None:
            return float(r2_score(targets.values, predicted, sample_weight=weights))
        truth = targets.row_labels()
        labels = predicted.tolist()
        if targets.kind == "multilabel":
            truth = [set(row) for row in truth]
            labels = [set(compress(self._readout().labels, row)) for row in labels]
        return float(np.average([a == b for a, b in zip(truth, labels, strict=True)], weights=weights))

    @property
    def coef_(self) -> np.ndarray:
        """Coefficients (targets, features) float64.

        Predicted targets are (X − mean_) · coef_ᵀ + intercept_. For labels, a target is the
        indicator of a label, 1 for rows with the label and 0 for other rows.
        """
        projection = self.linear_projection()
        return (projection.loadings @ self._readout().weights).T

    @property
    def intercept_(self) -> np.ndarray:
        """Means (targets,) float64 of the targets, as in scikit-learn's PLSRegression."""
        return self._readout().offset

    @property
    def y_loadings_(self) -> np.ndarray:
        """Change (targets, components) float64 of the targets per unit of each component."""
        return self._readout().weights.T

    @property
    def x_loadings_(self) -> np.ndarray:
        """Change (features, components) float64 of the features per unit of each component.

        The change is computed by least squares from the rows' scatter. If only the diagonal of the
        scatter is stored, features are taken as uncorrelated. Raises InvalidParameter for a
        refined solution, whose scatter is not stored.
        """
        projection = self.linear_projection()
        if projection.solution == "refined":
            raise InvalidParameter(
                f"{type(self).__name__} was refined, and x_loadings_ needs Cxx, which is not kept. Give scatter='exact'."
            )
        m = self.moments(self.state_)
        loadings = projection.loadings / m.scale[:, None]
        image = m.scatter_product(loadings)
        return np.linalg.lstsq(loadings.T @ image, image.T, rcond=None)[0].T / m.scale[:, None]

    def inverse_transform(self, Z: ArrayLike) -> np.ndarray:
        """Return the rows (rows, features) float64 that have the components Z.

        Z is (rows, components). The rows are Z · x_loadings_ᵀ + mean_. Raises WidthMismatch. With
        a feature map raises InvalidParameter, because a map cannot be inverted.
        """
        if self.feature_map is not None:
            raise InvalidParameter(
                "rows went through a feature map, which cannot be turned back; leave feature_map out."
            )
        Z = np.asarray(Z, dtype=np.float64)
        loadings = self.x_loadings_
        if Z.ndim != 2 or Z.shape[1] != loadings.shape[1]:
            raise WidthMismatch(
                f"Z has the shape {Z.shape}; {type(self).__name__} has {loadings.shape[1]} components. Pass a column each."
            )
        return Z @ loadings.T + self.mean_

    @property
    def classes_(self) -> np.ndarray:
        """Labels learned, sorted. Empty if targets are numbers.

        Labels without weight and labels with fewer than `min_class_rows` rows are not included.
        """
        readout = self.linear_projection().readout
        return label_array(()) if readout is None else readout.classes

    def readout(self, moments: Moments, loadings: np.ndarray, eigenvalues: np.ndarray) -> Readout:
        """Return the regression of the targets on the components (a `Readout`).

        moments: centred sums of the rows and targets.
        loadings: (features, p), loadings of p components.
        eigenvalues: (p,).
        """
        unscaled = loadings / moments.scale[:, None]
        sizes = self.scatter_along(moments, unscaled, eigenvalues)
        weights = (unscaled.T @ moments.cross) / sizes[:, None]
        order = sorted(range(len(moments.labels)), key=lambda at: moments.labels[at])
        columns = order if moments.labelled else list(range(weights.shape[1]))
        labels = tuple(moments.labels[at] for at in order)
        return Readout(weights[:, columns], moments.target_mean[columns], moments.kind or "continuous", labels, TARGETS)

    @abstractmethod
    def scatter_along(self, moments: Moments, loadings: np.ndarray, eigenvalues: np.ndarray) -> np.ndarray:
        """Return wᵀ A w (p,) for each component w.

        A is the matrix that the method inverts, the scatter of the rows with its ridge.

        loadings: (features, p), components of the scaled columns.
        """

    def _parse_targets(self, accumulator: Accumulator, y: TargetsLike, rows: int) -> Targets | None:
        y = one_label_a_row(y, stacklevel=6) if self.target == "class" else y
        return super()._parse_targets(accumulator, y, rows)

    def _readout(self) -> Readout:
        projection = self.linear_projection()
        if projection.readout is None or not len(projection.readout.offset):
            raise NotFitted("no target has been learned with a weight above 0: pass rows with targets first.")
        return projection.readout


def two_stage_sizes(xh: np.ndarray, loadings: np.ndarray, eigenvalues: np.ndarray) -> np.ndarray:
    """Return wᵀ A w (p,) for each component w of a two-stage method.

    A is the matrix that the method inverts, the scatter of the rows with its ridge. The value
    follows from ‖wᵀ XH‖² = λ wᵀ A w, where λ is the eigenvalue. Components may have any length.

    xh: (features, k), the product XH of the centred rows and the method's factor of the targets.
    """
    return ((xh.T @ loadings) ** 2).sum(axis=0) / eigenvalues
