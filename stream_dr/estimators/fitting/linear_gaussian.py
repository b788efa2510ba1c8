"""Gaussian density of rows from principal components, with the names of scikit-learn's PCA.

This is probabilistic PCA [PPCA; mathematics §10]. The variance is λ_i along component i. In every
direction orthogonal to the components the variance is σ², the mean variance of the rows along
these directions. So the covariance is Σ = V diag(λ − σ²) Vᵀ + σ² I, where the columns of V are the
components.

Scoring rows never forms Σ. For a row x with the components z and the mean x̄ of the rows,
(x − x̄)ᵀ Σ⁻¹ (x − x̄) = Σ z_i² / λ_i + (|x − x̄|² − |z|²) / σ². Standardised columns are scaled
first, and the density is that of the columns in their own units.
"""

from abc import abstractmethod
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from stream_dr.errors import InvalidParameter, WidthMismatch
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.estimators.fitting.inputs import RowsLike, TargetsLike
from stream_dr.estimators.fitting.mapping import add_map
from stream_dr.estimators.fitting.moments import divide_by_scale
from stream_dr.rows.block import Rows
from stream_dr.solve.spectral import EPS


class Gaussian(NamedTuple):
    """Gaussian density of the rows learned, all in float64.

    Attributes
    ----------
    mean : (features,)
        Mean of the rows.
    axes : (features, components)
        Components, orthonormal in the scaled columns.
    variances : (components,)
        Variance along each component.
    total : float
        Variance of all scaled columns together.
    scale : (features,)
        Factor of each column. Columns of factor 0 have no effect on the density.
    weight : float
        Sum of the rows' weights.
    most : float
        Largest number of directions in which the rows can vary. It is the number of rows or the
        number of columns whose factor is not 0, whichever is smaller.
    """

    mean: np.ndarray
    axes: np.ndarray
    variances: np.ndarray
    total: float
    scale: np.ndarray
    weight: float
    most: float

    @property
    def noise(self) -> float:
        """Mean variance σ² of the directions orthogonal to the components.

        0 if there are no such directions, or if their variance is only rounding error.
        """
        p = len(self.variances)
        remaining = self.total - float(self.variances.sum())
        rounding = 8 * len(self.mean) * EPS * self.total
        return remaining / (self.most - p) if self.most > p and remaining > rounding else 0.0

    @property
    def n_components(self) -> int:
        """Number of columns that `apply` returns."""
        return 1

    def apply(self, X: Rows) -> np.ndarray:
        """Return the log-likelihood (rows, 1) of rows (rows, features), dense or CSR.

        Let σ² be the variance in directions orthogonal to the components. If σ² is 0 and there are
        such directions, no density is defined, and InvalidParameter is raised. Costs O(entries ·
        components).
        """
        scale = self.scale[self.scale > 0.0]
        d = len(scale)
        p = len(self.variances)
        noise = self.noise

        # Sparse rows are not centred. The squared distance is computed as |x|² − 2 xᵀx̄ + |x̄|².
        centre = self.mean * self.scale
        if sp.issparse(X):
            rows = X.multiply(self.scale).tocsr()
            z = rows @ self.axes - centre @ self.axes
            squares = np.asarray(rows.multiply(rows).sum(axis=1)).ravel() - 2.0 * (rows @ centre) + centre @ centre
        else:
            rows = (X - self.mean) * self.scale
            z = rows @ self.axes
            squares = np.einsum("ij,ij->i", rows, rows)

        size = (z * z / self.variances).sum(axis=1)
        log_det = float(np.log(self.variances).sum() - 2.0 * np.log(scale).sum())
        if p < d:
            if noise <= 0.0:
                raise InvalidParameter(
                    f"{p} components leave no variance to the other {d - p} directions of {d}: no density is defined. Fit "
                    "more rows than features, or with n_components below the rank."
                )
            size += np.maximum(squares - (z * z).sum(axis=1), 0.0) / noise
            log_det += (d - p) * np.log(noise)
        return -0.5 * (d * np.log(2.0 * np.pi) + log_det + size)[:, None]


class LinearGaussian(Estimator):
    """Base of the estimators of principal components.

    With a feature map, all attributes and methods are about the mapped rows.

    Attributes
    ----------
    explained_variance_ : ndarray (components,), float64
        Variance along each component, divisor N − 1, as in scikit-learn.
    explained_variance_ratio_ : ndarray (components,), float64
        Share of each component in the variance of all columns.
    singular_values_ : ndarray (components,), float64
        Square root of the summed squares of the rows along each component.
    noise_variance_ : float
        Mean variance of the directions orthogonal to the components. 0.0 if there are none.
    """

    @abstractmethod
    def _learned_gaussian(self) -> Gaussian:
        """Return the Gaussian density of the rows learned."""

    @property
    def explained_variance_(self) -> np.ndarray:
        """Variance (components,) along each component."""
        return self._learned_gaussian().variances

    @property
    def explained_variance_ratio_(self) -> np.ndarray:
        """Share (components,) of each component in the total variance.

        Zeros if no column varies.
        """
        gaussian = self._learned_gaussian()
        return gaussian.variances / gaussian.total if gaussian.total > 0 else np.zeros(len(gaussian.variances))

    @property
    def noise_variance_(self) -> float:
        """Mean variance σ² of the directions orthogonal to the components.

        There are min(features, rows) − components such directions. 0.0 if there are none.
        """
        return self._learned_gaussian().noise

    def get_covariance(self) -> np.ndarray:
        """Return the covariance (features, features) of the Gaussian density.

        The covariance is V diag(λ − σ²) Vᵀ + σ² I, where V are the components, λ their variances
        and σ² is noise_variance_. It is in the columns' own units. Columns that a feature map of
        tables excludes have covariance 0. Takes 8 · features² bytes.
        """
        gaussian = self._learned_gaussian()
        covariance = (gaussian.axes * np.maximum(gaussian.variances - gaussian.noise, 0.0)) @ gaussian.axes.T
        covariance[np.diag_indices_from(covariance)] += gaussian.noise
        return divide_by_scale(divide_by_scale(covariance, gaussian.scale).T, gaussian.scale)

    def score_samples(self, X: RowsLike) -> np.ndarray:
        """Return the log-likelihood (rows,) of each row.

        No (features, features) matrix is formed. Raises InvalidParameter if the rows learned vary
        in fewer directions than there are features and all these directions are components. There
        is no density then.
        """
        return self.project(add_map(self.state_, self._learned_gaussian()), X)[:, 0]  # type: ignore[arg-type]

    def score(self, X: RowsLike, y: TargetsLike = None) -> float:
        """Return the mean log-likelihood of the rows. y is ignored."""
        return float(self.score_samples(X).mean())

    def inverse_transform(self, Z: ArrayLike) -> np.ndarray:
        """Return the rows (rows, features) float64 that have the components Z.

        Z is (rows, components). The returned rows lie in the span of the components. Raises
        WidthMismatch. With a feature map raises InvalidParameter, because a map cannot be
        inverted.
        """
        if self.feature_map is not None:
            raise InvalidParameter(
                "rows went through a feature map, which cannot be turned back; leave feature_map out."
            )
        gaussian = self._learned_gaussian()
        Z = np.asarray(Z, dtype=np.float64)
        if Z.ndim != 2 or Z.shape[1] != gaussian.axes.shape[1]:
            raise WidthMismatch(
                f"Z has the shape {Z.shape}; {type(self).__name__} has {gaussian.axes.shape[1]} components. "
                "Pass a column each."
            )
        return (self._unwhitened(Z) @ gaussian.axes.T) / gaussian.scale + gaussian.mean

    def _unwhitened(self, Z: np.ndarray) -> np.ndarray:
        """Return components (rows, components) as they would be without `whiten`."""
        return Z
