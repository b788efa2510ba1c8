"""PCA (principal component analysis) from exact moments."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal

import numpy as np

from stream_dr.errors import InvalidParameter
from stream_dr.estimators.fitting.closed_form import ClosedForm, Directions
from stream_dr.estimators.fitting.linear_gaussian import Gaussian, LinearGaussian
from stream_dr.estimators.fitting.mapping import table_columns
from stream_dr.estimators.fitting.moments import Moments, divide_by_scale, scale_features
from stream_dr.estimators.fitting.not_fitted import NeedsRefine
from stream_dr.estimators.fitting.parameter_checks import check_choice
from stream_dr.projection import Linear
from stream_dr.solve.spectral import semidefinite_eigenpairs
from stream_dr.statistics.moments.accumulator import MomentState
from stream_dr.statistics.protocol import State


@dataclass(eq=False, repr=False)
class PCA(LinearGaussian, ClosedForm):
    """Find the directions of largest variance, exactly and in one pass.

    Principal component analysis. Unsupervised: y is ignored. Fitted attributes and scores are
    those of scikit-learn's PCA. A row of weight 2 counts as two equal rows.

    >>> from stream_dr import PCA
    >>> PCA(n_components=1).fit([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]).components_.round(3).tolist()
    [[0.707, 0.707]]

    There are at most min(features, rows − 1) components. Merges and unlearns. Above 4,096 features
    only the diagonal of the scatter matrix Cxx is stored, and principal components cannot be
    computed from the diagonal. Then transform raises NeedsRefine: call `refine`, or use CCIPCA.

    Parameters
    ----------
    n_components : int, float in (0, 1) or None, default None
        Number of components. A float is a share of all variance, and takes the fewest components
        that explain more than this share. None takes all components.
    standardize : bool or None, default None
        Solve as if every feature had variance 1. None is False, except for the columns that the
        feature map `table` makes. These columns are scaled as factor analysis of mixed data does.
        Numbers and dates get variance 1. The column of a category is divided by the square root of
        the category's share. Columns that mark missing values are left out.
    whiten : bool, default False
        Give every component variance 1 in `transform` (divisor N − 1). `components_` stay
        orthonormal.

    Notes
    -----
    Components are the orthonormal eigenvectors of Cxx = Σ w (x − x̄)(x − x̄)ᵀ [mathematics §2].
    The sum is over rows x of weight w, and x̄ is the mean. `eigenvalues_` are those of Cxx.
    Divided by N, the sum of weights, they are variances.

    Covariance and density do not depend on `whiten`. (In scikit-learn they do, because its
    whitened components multiply by the variances twice.) With scaled columns (`standardize`),
    variances are those of the scaled columns. Rows, covariance and density are in the columns' own
    units.

    State: O(d²) numbers for d features. Learning a row costs O(d²), solving O(d³).
    """

    limit: ClassVar[str] = "the rows vary in no more directions than features, or than rows less 1"
    target_kinds: ClassVar[tuple[str, ...]] = ()
    refined_by: ClassVar[Literal["first_stage", "subspace"] | None] = "subspace"
    encoding: ClassVar[str] = "none"
    standardize_choices: ClassVar[tuple[bool | None, ...]] = (False, True, None)

    n_components: int | float | None = None  # type: ignore[assignment]  # a share of the variance, too
    _: KW_ONLY
    standardize: bool | None = None  # type: ignore[assignment]  # None: by the kind of a table's column
    whiten: bool = False

    def check_parameters(self) -> None:
        """Raise InvalidParameter when a parameter is outside its range."""
        super().check_parameters()
        check_choice("whiten", self.whiten, (False, True))

    def check_components(self) -> None:
        """Raise InvalidParameter if n_components is outside its range.

        It must be None, an integer ≥ 1, or a float in (0, 1), a share of the variance.
        """
        if not isinstance(self.n_components, float):
            super().check_components()
        elif not 0.0 < self.n_components < 1.0:
            raise InvalidParameter(
                f"n_components={self.n_components!r}; as a share of all variance it must lie between 0 and 1, both left out."
            )

    def moments(self, state: State) -> Moments:
        """Return the moments (sums of the rows) that the components are computed from.

        If `standardize` is None, the columns of a table are scaled as in factor analysis of mixed
        data.
        """
        m = super().moments(state)
        columns = table_columns(state) if self.standardize is None else None
        if columns is None:
            return m

        numbers, categories, gaps = columns
        varying, present = numbers[m.rounding.varying(m.diagonal)[numbers]], categories[m.mean[categories] > 0.0]
        factor = np.ones(len(m.mean))
        factor[varying] = np.sqrt(m.weight / m.diagonal[varying])
        # If all rows of a category were unlearned, its column holds only rounding error.
        factor[categories] = 0.0
        factor[present] = 1.0 / np.sqrt(m.mean[present])
        factor[gaps] = 0.0
        return scale_features(m, factor)

    def component_count(self, eigenvalues: np.ndarray, moments: Moments) -> int:
        """Return the number of components to take.

        This is n_components. If n_components is a share of the variance, it is the number of
        components that explain this share.
        """
        if not isinstance(self.n_components, float):
            return super().component_count(eigenvalues, moments)
        shares = np.cumsum(eigenvalues) / max(float(moments.diagonal.sum()), np.finfo(float).tiny)
        return min(int(np.searchsorted(shares, self.n_components, side="right")) + 1, len(eigenvalues))

    def make_projection(self, moments: Moments, directions: Directions, solution: str) -> Linear:
        """Return the projection, scaled to unit variances if `whiten`."""
        projection = super().make_projection(moments, directions, solution)
        if not self.whiten:
            return projection
        return projection._replace(
            loadings=projection.loadings / np.sqrt(projection.eigenvalues / variance_divisor(moments))
        )

    @property
    def components_(self) -> np.ndarray:
        """Directions (components, features) float64, orthonormal even with `whiten`."""
        components: np.ndarray = super().components_
        return components * np.sqrt(self.explained_variance_)[:, None] if self.whiten else components

    @property
    def singular_values_(self) -> np.ndarray:
        """Singular values (components,) of the centred rows.

        Each row is multiplied by the square root of its weight first.
        """
        return np.sqrt(self.eigenvalues_)

    def _unwhitened(self, Z: np.ndarray) -> np.ndarray:
        return Z * np.sqrt(self.explained_variance_) if self.whiten else Z

    def _learned_gaussian(self) -> Gaussian:
        projection = self.linear_projection()
        m = self.moments(self.state_)
        variances = projection.eigenvalues / variance_divisor(m)
        loadings = projection.loadings * np.sqrt(variances) if self.whiten else projection.loadings
        total = float(m.diagonal.sum()) / variance_divisor(m)
        most = min(float(np.count_nonzero(m.scale)), m.weight)
        axes = divide_by_scale(loadings, m.scale)
        return Gaussian(projection.mean, axes, variances, total, m.scale, m.weight, most)

    def directions(self, moments: Moments, state: MomentState) -> Directions:
        """Return eigenvectors and eigenvalues of the scatter Cxx above the rank cut.

        Raises NeedsRefine if only the diagonal of Cxx is stored.
        """
        if moments.scatter is None:
            raise NeedsRefine(
                "PCA keeps only the diagonal of Cxx here (scatter is diagonal past 4,096 features), and principal axes "
                "cannot be had from it. Call refine(source), give scatter='exact', or use CCIPCA."
            )
        values, vectors = semidefinite_eigenpairs(moments.scatter, moments.rounding.floor(moments.diagonal))
        return vectors, values


def variance_divisor(moments: Moments) -> float:
    """Return the divisor that turns summed scatter into variances.

    The divisor is N − 1 for the sum N of weights, or N if N is at most 1.
    """
    return moments.weight - 1.0 if moments.weight > 1.0 else moments.weight
