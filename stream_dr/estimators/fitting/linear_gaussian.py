"""Gaussian density of rows from principal components (probabilistic PCA).

Methods and attributes have the names of scikit-learn's PCA [PPCA; mathematics §10]. The variance
along component i is λ_i. The variance in every direction orthogonal to the components is σ², the
mean variance of the rows along these directions. The covariance (features, features) is

    V diag(λ − σ²) Vᵀ + σ² I

where the columns of V (features, components) are the components. Scoring rows never forms this
matrix. If columns are standardised, the density is nevertheless in the columns' own units.
"""

from abc import abstractmethod
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from stream_dr.batch.block import Rows
from stream_dr.errors import InvalidParameter
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.estimators.fitting.inputs import RowsLike, TargetsLike
from stream_dr.estimators.fitting.mapping import prepend_feature_map
from stream_dr.estimators.fitting.moments import divide_by_scale
from stream_dr.solve.spectral import EPS


class GaussianLogLikelihood(NamedTuple):
    """Gaussian density of the rows learned, all in float64.

    Attributes
    ----------
    mean : (features,)
        Mean of the rows.
    axes : (features, components)
        Components, orthonormal. They refer to scaled columns.
    variances : (components,)
        Variance along each component.
    total_variance : float
        Sum of the variances of all scaled columns.
    scale : (features,)
        Factor by which each column is scaled. A column with the factor 0 has no effect on the
        density.
    weight : float
        Sum of the rows' weights.
    max_directions : float
        Largest possible number of directions in which the rows vary. This is the smaller of two
        numbers, the sum of the weights and the number of columns whose factor is not 0.
    """

    mean: np.ndarray
    axes: np.ndarray
    variances: np.ndarray
    total_variance: float
    scale: np.ndarray
    weight: float
    max_directions: float

    @property
    def noise_variance(self) -> float:
        """Mean variance along the directions orthogonal to the components.

        The value is 0 if there are no such directions, or if the variance is only rounding error.
        """
        p = len(self.variances)
        remaining = self.total_variance - float(self.variances.sum())
        rounding = 8 * len(self.mean) * EPS * self.total_variance
        if self.max_directions > p and remaining > rounding:
            return remaining / (self.max_directions - p)
        return 0.0

    @property
    def n_components(self) -> int:
        """Number of columns that `apply` returns: 1, the log-likelihood."""
        return 1

    def apply(self, X: Rows) -> np.ndarray:
        """Return the log-likelihood (rows, 1) of rows.

        If the variance along directions orthogonal to the components is 0, no density is defined,
        and InvalidParameter is raised. Costs O(entries · components).

        X: (rows, features), dense or CSR.
        """
        # Columns are multiplied by `scale`. The density has d dimensions, because columns with the
        # factor 0 have no effect. `axes` (features, p) are the components of scaled columns.
        scale = self.scale[self.scale > 0.0]
        d = len(scale)
        p = len(self.variances)
        noise_variance = self.noise_variance

        # Compute components z and squared distances |x − x̄|² of the rows x from their mean x̄.
        # Sparse rows are not centred, so the distance is |x|² − 2 xᵀx̄ + |x̄|².
        centre = self.mean * self.scale
        if sp.issparse(X):
            rows = X.multiply(self.scale).tocsr()
            z = rows @ self.axes - centre @ self.axes
            squared_lengths = np.asarray(rows.multiply(rows).sum(axis=1)).ravel()
            squared_distances = squared_lengths - 2.0 * (rows @ centre) + centre @ centre
        else:
            rows = (X - self.mean) * self.scale
            z = rows @ self.axes
            squared_distances = np.einsum("ij,ij->i", rows, rows)

        # `mahalanobis` (rows,) is each row's squared Mahalanobis distance from the mean: the sum of
        # its squared distances along the components, each divided by the variance of the component.
        mahalanobis: np.ndarray = (z * z / self.variances).sum(axis=1)
        # The log-determinant of the covariance is first that of scaled columns along the
        # components. The term with `scale` converts it to the units of the unscaled columns.
        log_det = float(np.log(self.variances).sum() - 2.0 * np.log(scale).sum())
        # Add the part orthogonal to the p components, if these are not all d directions.
        # All orthogonal directions have the same variance, `noise_variance`.
        if p < d:
            if noise_variance <= 0.0:
                raise InvalidParameter(
                    f"{p} components leave no variance to the other {d - p} directions of {d}: no density is defined. Fit "
                    "more rows than features, or with n_components below the rank."
                )
            mahalanobis += np.maximum(squared_distances - (z * z).sum(axis=1), 0.0) / noise_variance
            log_det += (d - p) * np.log(noise_variance)
        return -0.5 * (d * float(np.log(2.0 * np.pi)) + log_det + mahalanobis)[:, None]


class LinearGaussian(Estimator):
    """Base class of estimators of principal components.

    If there is a feature map, all attributes and methods refer to the mapped rows.

    Attributes
    ----------
    explained_variance_ : ndarray (components,), float64
        Variance along each component, with the divisor N − 1 for N rows, as in scikit-learn.
    explained_variance_ratio_ : ndarray (components,), float64
        Variance along each component, divided by the variance of all columns.
    singular_values_ : ndarray (components,), float64
        Singular values of the centred rows.
    noise_variance_ : float
        Mean variance along the directions orthogonal to the components. 0.0 if there are no such
        directions.
    """

    whiten: bool = False
    """True if projected rows are scaled to variance 1 along each component."""

    @abstractmethod
    def _learned_gaussian(self) -> GaussianLogLikelihood:
        """Return the Gaussian density of the rows learned."""

    @property
    def explained_variance_(self) -> np.ndarray:
        """Variance (components,) along each component."""
        return self._learned_gaussian().variances

    @property
    def explained_variance_ratio_(self) -> np.ndarray:
        """Variance (components,) along each component, divided by the total variance.

        The values are 0 if no column varies.
        """
        gaussian = self._learned_gaussian()
        total = gaussian.total_variance
        if total > 0:
            return gaussian.variances / total
        return np.zeros(len(gaussian.variances))

    @property
    def noise_variance_(self) -> float:
        """Mean variance along the directions orthogonal to the components.

        There are min(features, rows) − components such directions. If there are none, the value is
        0.0.
        """
        return self._learned_gaussian().noise_variance

    def get_covariance(self) -> np.ndarray:
        """Return the covariance (features, features) of the Gaussian density.

        The covariance is in the columns' own units. If the feature map `table` is used, columns
        that mark missing values have covariance 0. The matrix takes 8 · features² bytes.
        """
        # Compute V diag(λ − σ²) Vᵀ + σ² I for the components V.
        # λ are the variances along components, and σ² is the variance along other directions.
        gaussian = self._learned_gaussian()
        covariance = (gaussian.axes * np.maximum(gaussian.variances - gaussian.noise_variance, 0.0)) @ gaussian.axes.T
        covariance[np.diag_indices_from(covariance)] += gaussian.noise_variance
        half_scaled = divide_by_scale(covariance, gaussian.scale)
        return divide_by_scale(half_scaled.T, gaussian.scale)

    def score_samples(self, X: RowsLike) -> np.ndarray:
        """Return the log-likelihood (rows,) of each row.

        Raises InvalidParameter if the variance along directions orthogonal to the components is 0.
        No density is defined in this case.
        """
        return self.project(prepend_feature_map(self.state_, self._learned_gaussian()), X)[:, 0]  # type: ignore[arg-type]

    def score(self, X: RowsLike, y: TargetsLike = None) -> float:
        """Return the mean log-likelihood of the rows.

        y is ignored.
        """
        return float(self.score_samples(X).mean())

    def inverse_transform(self, Z: ArrayLike) -> np.ndarray:
        """Return the rows that have the components Z.

        The result is (rows, features) float64. The returned rows minus the mean lie in the span of
        the components. Raises WidthMismatch if Z has another number of columns. Raises
        InvalidParameter if there is a feature map, because a map cannot be inverted.

        Z: (rows, components).
        """
        scaled = self._checked_components(Z)
        if self.whiten:
            scaled = scaled * np.sqrt(self.explained_variance_)
        gaussian = self._learned_gaussian()
        return np.asarray((scaled @ gaussian.axes.T) / gaussian.scale + gaussian.mean)
