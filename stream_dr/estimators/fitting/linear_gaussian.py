"""LinearGaussian: what principal components say of the rows as a Gaussian, named as in scikit-learn's PCA.

Probabilistic PCA [PPCA; mathematics §10]: variance λ_i along component i, and in every direction outside of them the same,
σ², the mean of what the components leave. So Σ = V diag(λ − σ²) Vᵀ + σ² I, which is never formed to score rows: with z the
row's components, (x − x̄)ᵀ Σ⁻¹ (x − x̄) = Σ z_i² / λ_i + (|x − x̄|² − |z|²) / σ². Standardised columns are scaled first, and
the density is that of the columns as they came.
"""

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from stream_dr.errors import InvalidParameter, WidthMismatch
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.estimators.fitting.mapping import through
from stream_dr.estimators.fitting.moments import unscaled
from stream_dr.solve.spectral import EPS


class Gaussian(NamedTuple):
    """Rows as a Gaussian. float64.

    mean: (features,). axes: (features, components) V, orthonormal in the scaled columns. variances: (components,) λ.
    total: variance of all scaled columns together. scale: (features,) what columns are multiplied by; those of 0 are left
    out. weight: N. most: number of directions in which the rows could vary, min(columns not left out, rows).
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
        """σ²: the mean variance of the directions left out; 0 where they have none but rounding, or none are left out."""
        p, left = len(self.variances), self.total - float(self.variances.sum())
        return left / (self.most - p) if self.most > p and left > 8 * len(self.mean) * EPS * self.total else 0.0

    @property
    def n_components(self) -> int:
        """Columns of `apply`'s answer."""
        return 1

    def apply(self, X: Any) -> np.ndarray:
        """Log-likelihood (rows, 1) of rows (rows, features), dense or CSR. O(entries · components)."""
        scaled = self.scale[self.scale > 0.0]
        d, p, noise = len(scaled), len(self.variances), self.noise
        centre = self.mean * self.scale
        if sp.issparse(X):
            rows = X.multiply(self.scale).tocsr()
            z = rows @ self.axes - centre @ self.axes
            squares = np.asarray(rows.multiply(rows).sum(axis=1)).ravel() - 2.0 * (rows @ centre) + centre @ centre
        else:
            rows = (X - self.mean) * self.scale
            z, squares = rows @ self.axes, np.einsum("ij,ij->i", rows, rows)
        size = (z * z / self.variances).sum(axis=1)
        log_det = float(np.log(self.variances).sum() - 2.0 * np.log(scaled).sum())
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
    """Base of the estimators of principal components. With a feature map all of it is about the mapped rows.

    Attributes
    ----------
    explained_variance_ : ndarray (components,), float64
        Variance along each component, divisor N − 1, as in scikit-learn.
    explained_variance_ratio_ : ndarray (components,), float64
        Share of all variance.
    singular_values_ : ndarray (components,), float64
        Root of the summed squares along each component.
    noise_variance_ : float
        Mean variance of the directions left out; 0.0 where there are none.
    """

    @abstractmethod
    def _gaussian(self) -> Gaussian:
        """The rows learned, as a Gaussian."""

    @property
    def explained_variance_(self) -> np.ndarray:
        """(components,) variance along each component."""
        return self._gaussian().variances

    @property
    def explained_variance_ratio_(self) -> np.ndarray:
        """(components,) share of all variance; zeros where nothing varies."""
        made = self._gaussian()
        return made.variances / made.total if made.total > 0 else np.zeros(len(made.variances))

    @property
    def noise_variance_(self) -> float:
        """σ², the mean variance of the min(features, rows) − components directions left out; 0.0 where there are none."""
        return self._gaussian().noise

    def get_covariance(self) -> np.ndarray:
        """(features, features) V diag(λ − σ²) Vᵀ + σ² I, in the columns' own units; 0 where a map's column is left out.
        8 · features² bytes."""
        made = self._gaussian()
        covariance = (made.axes * np.maximum(made.variances - made.noise, 0.0)) @ made.axes.T
        covariance[np.diag_indices_from(covariance)] += made.noise
        return unscaled(unscaled(covariance, made.scale).T, made.scale)

    def score_samples(self, X: Any) -> np.ndarray:
        """Log-likelihood (rows,) of each row; never forms a matrix of features². Raises InvalidParameter where the rows
        learned vary in fewer directions than there are and all of them are components: no density then."""
        return self.project(through(self.state_, self._gaussian()), X)[:, 0]  # type: ignore[arg-type]

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log-likelihood of the rows; y is ignored."""
        return float(self.score_samples(X).mean())

    def inverse_transform(self, Z: Any) -> np.ndarray:
        """Rows (rows, features) float64 that lie in the components' span and have the components Z (rows, components).

        Raises WidthMismatch, and InvalidParameter with a feature map, which cannot be turned back.
        """
        if getattr(self, "feature_map", None) is not None:
            raise InvalidParameter(
                "rows went through a feature map, which cannot be turned back; leave feature_map out."
            )
        made, Z = self._gaussian(), np.asarray(Z, dtype=np.float64)
        if Z.ndim != 2 or Z.shape[1] != made.axes.shape[1]:
            raise WidthMismatch(
                f"Z has the shape {Z.shape}; {type(self).__name__} has {made.axes.shape[1]} components. Pass a column each."
            )
        return (self._unwhitened(Z) @ made.axes.T) / made.scale + made.mean

    def _unwhitened(self, Z: np.ndarray) -> np.ndarray:
        """Components (rows, components) as they were before any whitening."""
        return Z
