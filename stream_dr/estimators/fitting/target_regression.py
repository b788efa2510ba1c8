"""TargetRegression: targets predicted by regression on the components, named as in scikit-learn's cross_decomposition.

Components are uncorrelated in the scatter A that the method inverts, A = Cxx, with a ridge a·Cxx + ρI (PLS-DA: A = Cxx),
so each tells its own part: `y_loadings_` q_i = Cxyᵀ w_i / w_iᵀ A w_i, and the targets are ȳ + Σ z_i q_i. With all of a
two-stage method's components that is ridge regression on every target; with fewer it is regression of reduced rank
[mathematics §10].
"""

from abc import abstractmethod
from itertools import compress
from typing import Any, Self

import numpy as np
from sklearn.utils import ClassifierTags

from stream_dr.errors import EmptyInput, InvalidParameter, WidthMismatch
from stream_dr.estimators.fitting.closed_form import ClosedForm
from stream_dr.estimators.fitting.label_column import one_label_a_row
from stream_dr.estimators.fitting.moments import Moments
from stream_dr.estimators.fitting.not_fitted import NotFitted
from stream_dr.readout import TARGETS, Readout
from stream_dr.rows.batches import as_block, split
from stream_dr.rows.block import as_weights, row_weights


class TargetRegression(ClosedForm):
    """Base of the methods that predict targets by regression on their components.

    With `target="class"` scikit-learn takes them for classifiers, and stratifies its folds.

    Attributes
    ----------
    coef_ : ndarray (targets, features), float64
        Targets are (X − mean_) · coef_ᵀ + intercept_; labels by their indicators.
    intercept_ : ndarray (targets,), float64
        The targets' means.
    x_loadings_ : ndarray (features, components), float64
        What a unit of each component adds to the features, by least squares.
    y_loadings_ : ndarray (targets, components), float64
        What a unit of each component adds to the targets.
    """

    def predict(self, X: Any) -> np.ndarray:
        """Targets of rows X (rows, features), of the kind they were learned in.

        Numbers (rows,), or (rows, k) of several; one label a row: the label (rows,) whose indicator is predicted highest;
        several: the indicators (rows, labels) int64, in the order of `classes_`, 1 where a half or more is predicted. What
        is predicted of the indicators is (X − mean_) · coef_ᵀ + intercept_. Raises NotFitted, WidthMismatch, NotFinite.
        """
        projection: Any = self.projection()
        return self._readout().predicted(self.project(projection.scoring(), X))

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None, classes: Any = None) -> Self:
        """Go on learning rows X (rows, features), targets y, weights (rows,). The state is unchanged on error.

        classes: ignored, for callers used to scikit-learn's classifiers; new labels may come at any time.
        """
        return super().partial_fit(X, y, sample_weight)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # scikit-learn stratifies the folds of a classifier alone.
        if self.target == "class":
            tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags()
        return tags

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """How well rows X (rows, features) are predicted, as in scikit-learn: R² of numbers, the mean over columns; of
        labels the share of rows whose label, or whole set of labels, is predicted.

        y: as for `fit`; rows without a target are left out. sample_weight: (rows,), what each row counts. Raises EmptyInput
        where no row is left, InvalidTargets, and what `predict` does.
        """
        from sklearn.metrics import r2_score  # a second that only those who score wait for

        block = split(as_block(X, y, sample_weight))
        predicted = self.predict(block.X)
        targets = self._parse_targets(self.holder().accumulator, block.y, len(predicted))
        weights = row_weights(as_weights(block.weights, len(predicted)), len(predicted))
        there = weights > 0 if targets.present is None else (weights > 0) & targets.present
        if not there.any():
            raise EmptyInput(
                "no row has a target and a weight above 0: there is nothing to score. Pass rows that have."
            )

        targets, predicted, weights = targets.take(there), predicted[there], weights[there]
        if targets.values is not None:
            return float(r2_score(targets.values, predicted, sample_weight=weights))
        truth, said = targets.row_labels(), predicted.tolist()
        if targets.kind == "multilabel":
            truth, said = [set(row) for row in truth], [set(compress(self._readout().labels, row)) for row in said]
        return float(np.average([a == b for a, b in zip(truth, said, strict=True)], weights=weights))

    @property
    def coef_(self) -> np.ndarray:
        """(targets, features) float64: targets are (X − mean_) · coef_ᵀ + intercept_, labels by their indicators."""
        projection: Any = self.projection()
        return (projection.loadings @ self._readout().weights).T

    @property
    def intercept_(self) -> np.ndarray:
        """(targets,) float64, the targets' means, as in scikit-learn's PLSRegression."""
        return self._readout().offset

    @property
    def y_loadings_(self) -> np.ndarray:
        """(targets, components) float64: what a unit of each component adds to the targets."""
        return self._readout().weights.T

    @property
    def x_loadings_(self) -> np.ndarray:
        """(features, components) float64: what a unit of each component adds to the features, by least squares.

        From the diagonal of Cxx features are taken to be uncorrelated. Raises InvalidParameter for a refined solution: its
        Cxx is not kept.
        """
        projection: Any = self.projection()
        if projection.solution == "refined":
            raise InvalidParameter(
                f"{type(self).__name__} was refined, and x_loadings_ needs Cxx, which is not kept. Give scatter='exact'."
            )
        m = self.moments(self.state_)
        loadings = projection.loadings / m.scale[:, None]
        image = m.spread @ loadings if m.spread.ndim == 2 else m.spread[:, None] * loadings
        return np.linalg.lstsq(loadings.T @ image, image.T, rcond=None)[0].T / m.scale[:, None]

    def inverse_transform(self, Z: Any) -> np.ndarray:
        """Rows (rows, features) float64 as their components Z (rows, components) tell them: Z · x_loadings_ᵀ + mean_.

        Raises WidthMismatch, and InvalidParameter with a feature map, which cannot be turned back.
        """
        if self.feature_map is not None:
            raise InvalidParameter(
                "rows went through a feature map, which cannot be turned back; leave feature_map out."
            )
        Z, loadings = np.asarray(Z, dtype=np.float64), self.x_loadings_
        if Z.ndim != 2 or Z.shape[1] != loadings.shape[1]:
            raise WidthMismatch(
                f"Z has the shape {Z.shape}; {type(self).__name__} has {loadings.shape[1]} components. Pass a column each."
            )
        return Z @ loadings.T + self.mean_

    @property
    def classes_(self) -> np.ndarray:
        """Labels learned that have weight and do not wait, sorted; none where targets are numbers."""
        projection: Any = self.projection()
        return projection.readout.classes

    def readout(self, moments: Moments, loadings: np.ndarray, eigenvalues: np.ndarray) -> Readout:
        """Return the regression on the components (features, p)."""
        unscaled = loadings / moments.scale[:, None]
        sizes = self.sizes(moments, unscaled, eigenvalues)
        weights = (unscaled.T @ moments.cross) / sizes[:, None]
        order = sorted(range(len(moments.labels)), key=lambda at: moments.labels[at])
        columns = order if moments.labelled else list(range(weights.shape[1]))
        labels = tuple(moments.labels[at] for at in order)
        return Readout(weights[:, columns], moments.target_mean[columns], moments.kind or "continuous", labels, TARGETS)

    @abstractmethod
    def sizes(self, moments: Moments, loadings: np.ndarray, eigenvalues: np.ndarray) -> np.ndarray:
        """(p,) wᵀ A w of the components (features, p) in the scaled columns."""

    def _parse_targets(self, accumulator: Any, y: Any, rows: int) -> Any:
        y = one_label_a_row(y, stacklevel=6) if self.target == "class" else y
        return super()._parse_targets(accumulator, y, rows)

    def _readout(self) -> Readout:
        projection: Any = self.projection()
        if not len(projection.readout.offset):
            raise NotFitted("no target has been learned with a weight above 0: pass rows with targets first.")
        return projection.readout


def two_stage_sizes(xh: np.ndarray, loadings: np.ndarray, eigenvalues: np.ndarray) -> np.ndarray:
    """(p,) wᵀ A w of a two-stage method's components, of any length, as ‖wᵀ XH‖² = λ wᵀ A w."""
    return ((xh.T @ loadings) ** 2).sum(axis=0) / eigenvalues
