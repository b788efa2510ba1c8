"""TargetRegression: targets predicted by regression on the components.

Attributes are named as in scikit-learn's cross_decomposition. Components are uncorrelated in the
scatter A that the method inverts: A = Cxx, with a ridge a·Cxx + ρI. So each explains its own part.
`y_loadings_` are q_i = Cxyᵀ w_i / w_iᵀ A w_i, and the targets are ȳ + Σ z_i q_i. With all of a
two-stage method's components that is ridge regression on every target. With fewer it is regression
of reduced rank [mathematics §10].
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

    With `target="class"` scikit-learn takes them as classifiers, and stratifies its folds.

    Attributes
    ----------
    coef_ : ndarray (targets, features), float64
        Coefficients: targets are (X − mean_) · coef_ᵀ + intercept_, labels by their indicators.
    intercept_ : ndarray (targets,), float64
        Means of the targets.
    x_loadings_ : ndarray (features, components), float64
        Change of the features by a unit of each component, by least squares.
    y_loadings_ : ndarray (targets, components), float64
        Change of the targets by a unit of each component.
    """

    def predict(self, X: RowsLike) -> np.ndarray:
        """Return the targets of rows X (rows, features), of the kind learned.

        - Numbers: (rows,), or (rows, k) of several.
        - One label a row: the label (rows,) whose indicator is predicted highest.
        - Several labels a row: the indicators (rows, labels) int64, in the order of `classes_`, 1
          where a half or more is predicted.

        Indicators are predicted as (X − mean_) · coef_ᵀ + intercept_. Raises NotFitted,
        WidthMismatch, NotFinite.
        """
        projection = self.linear_projection()
        return self._readout().predict(self.project(projection.scoring(), X))

    def partial_fit(
        self, X: RowsLike, y: TargetsLike = None, sample_weight: WeightsLike = None, classes: ArrayLike | None = None
    ) -> Self:
        """Learn more rows X (rows, features), targets y, weights (rows,).

        The state is unchanged on error. `classes` is ignored, for callers used to scikit-learn's
        classifiers: new labels may come at any time.
        """
        return super().partial_fit(X, y, sample_weight)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # scikit-learn stratifies the folds of a classifier alone.
        if self.target == "class":
            tags.estimator_type = "classifier"
            tags.classifier_tags = ClassifierTags()
        return tags

    def score(self, X: RowsLike, y: TargetsLike, sample_weight: WeightsLike = None) -> float:
        """Return how well rows X (rows, features) are predicted, as in scikit-learn.

        For numbers it is R², the mean over columns. For labels it is the share of rows whose
        label, or whole set of labels, is predicted.

        Parameters
        ----------
        X : rows (rows, features)
        y : array (rows,) or (rows, k)
            Targets as for `fit`. Rows without a target are left out.
        sample_weight : array (rows,) or None
            Weight of each row.

        Raises
        ------
        EmptyInput
            If no row has a target and a weight above 0.
        InvalidTargets, and whatever `predict` raises
        """
        # This import takes a second, so only callers of score wait for it.
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

        Targets are (X − mean_) · coef_ᵀ + intercept_, labels by their indicators.
        """
        projection = self.linear_projection()
        return (projection.loadings @ self._readout().weights).T

    @property
    def intercept_(self) -> np.ndarray:
        """Means (targets,) float64 of the targets, as in scikit-learn's PLSRegression."""
        return self._readout().offset

    @property
    def y_loadings_(self) -> np.ndarray:
        """Change (targets, components) float64 of the targets by a unit of each component."""
        return self._readout().weights.T

    @property
    def x_loadings_(self) -> np.ndarray:
        """Change (features, components) float64 of the features by a unit of each component.

        By least squares. From the diagonal of Cxx features are taken as uncorrelated. Raises
        InvalidParameter for a refined solution, whose Cxx is not kept.
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
        """Return the rows (rows, features) float64 that components Z (rows, components) describe.

        They are Z · x_loadings_ᵀ + mean_. Raises WidthMismatch, and InvalidParameter with a
        feature map, which cannot be turned back.
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
        """Labels learned that have weight and do not wait, sorted.

        Empty if targets are numbers.
        """
        readout = self.linear_projection().readout
        return label_array(()) if readout is None else readout.classes

    def readout(self, moments: Moments, loadings: np.ndarray, eigenvalues: np.ndarray) -> Readout:
        """Return the regression on the components (features, p)."""
        unscaled = loadings / moments.scale[:, None]
        sizes = self.scatter_along(moments, unscaled, eigenvalues)
        weights = (unscaled.T @ moments.cross) / sizes[:, None]
        order = sorted(range(len(moments.labels)), key=lambda at: moments.labels[at])
        columns = order if moments.labelled else list(range(weights.shape[1]))
        labels = tuple(moments.labels[at] for at in order)
        return Readout(weights[:, columns], moments.target_mean[columns], moments.kind or "continuous", labels, TARGETS)

    @abstractmethod
    def scatter_along(self, moments: Moments, loadings: np.ndarray, eigenvalues: np.ndarray) -> np.ndarray:
        """Return wᵀ A w (p,) of the components (features, p) in the scaled columns."""

    def _parse_targets(self, accumulator: Accumulator, y: TargetsLike, rows: int) -> Targets | None:
        y = one_label_a_row(y, stacklevel=6) if self.target == "class" else y
        return super()._parse_targets(accumulator, y, rows)

    def _readout(self) -> Readout:
        projection = self.linear_projection()
        if projection.readout is None or not len(projection.readout.offset):
            raise NotFitted("no target has been learned with a weight above 0: pass rows with targets first.")
        return projection.readout


def two_stage_sizes(xh: np.ndarray, loadings: np.ndarray, eigenvalues: np.ndarray) -> np.ndarray:
    """Return wᵀ A w (p,) of a two-stage method's components, of any length.

    It follows from ‖wᵀ XH‖² = λ wᵀ A w.
    """
    return ((xh.T @ loadings) ** 2).sum(axis=0) / eigenvalues
