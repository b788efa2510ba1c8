"""TargetRegression: targets predicted by regression on the components, named as in scikit-learn's cross_decomposition.

Components are uncorrelated in the scatter A that the method inverts, A = Cxx, with a ridge a·Cxx + ρI (PLS-DA: A = Cxx),
so each tells its own part: `y_loadings_` q_i = Cxyᵀ w_i / w_iᵀ A w_i, and the targets are ȳ + Σ z_i q_i. With all of a
two-stage method's components that is ridge regression on every target; with fewer it is regression of reduced rank
[mathematics §10].
"""

from abc import abstractmethod
from typing import Any

import numpy as np

from stream_dr.errors import InvalidParameter, WidthMismatch
from stream_dr.estimators.fitting.closed_form import ClosedForm
from stream_dr.estimators.fitting.moments import Moments, moments_of
from stream_dr.estimators.fitting.not_fitted import NotFitted
from stream_dr.readout import TARGETS, Readout


class TargetRegression(ClosedForm):
    """Base of the methods that predict targets by regression on their components.

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
        m = moments_of(self.state_, self.standardize)
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
        """Labels learned that have weight, sorted; none where targets are numbers."""
        projection: Any = self.projection()
        return projection.readout.classes

    def readout(self, moments: Moments, loadings: np.ndarray, eigenvalues: np.ndarray) -> Readout:
        """Regression on the components (features, p)."""
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

    def _readout(self) -> Readout:
        projection: Any = self.projection()
        if not len(projection.readout.offset):
            raise NotFitted("no target has been learned with a weight above 0: pass rows with targets first.")
        return projection.readout


def two_stage_sizes(xh: np.ndarray, loadings: np.ndarray, eigenvalues: np.ndarray) -> np.ndarray:
    """(p,) wᵀ A w of a two-stage method's components, of any length, as ‖wᵀ XH‖² = λ wᵀ A w."""
    return ((xh.T @ loadings) ** 2).sum(axis=0) / eigenvalues
