"""PCA (principal component analysis) from exact moments."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np

from stream_dr.errors import InvalidParameter
from stream_dr.estimators.fitting.closed_form import Directions
from stream_dr.estimators.fitting.linear_gaussian import GaussianLogLikelihood, LinearGaussian
from stream_dr.estimators.fitting.mapping import mapped_columns_of_state
from stream_dr.estimators.fitting.moments import Moments, divide_by_scale, scale_moments, standardizing_factors
from stream_dr.estimators.fitting.parameters import check_choice
from stream_dr.estimators.fitting.refining import Refinable
from stream_dr.estimators.fitting.stream_learner import NeedsRefine
from stream_dr.projection import Linear
from stream_dr.solve.spectral import nonzero_semidefinite_eigenpairs
from stream_dr.statistics.moments.state import MomentState
from stream_dr.statistics.protocol import State


@dataclass(eq=False, repr=False)
class PCA(LinearGaussian, Refinable):
    """Find directions of largest variance, exactly and in one pass.

    Principal component analysis. The method is unsupervised, so y is ignored. Fitted attributes
    and scores have the same names and values as in scikit-learn's PCA. A row of weight 2 counts as
    two equal rows.

    >>> from stream_dr import PCA
    >>> PCA(n_components=1).fit([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]).components_.round(3).tolist()
    [[0.707, 0.707]]

    There are at most min(features, rows − 1) components. States can be merged, and rows can be
    unlearned. Above 4,096 features only the diagonal of the rows' scatter is stored. Principal
    components cannot be computed from the diagonal, so `transform` raises NeedsRefine. Call
    `refine` in this case, or use CCIPCA.

    Parameters
    ----------
    n_components : int, float in (0, 1) or None, default None
        Number of components. A float from 0 to 1 is a share of the total variance. It means the
        smallest number of components that explain more than this share. None means all components.
    standardize : bool or None, default None
        True means to solve as if every feature had variance 1. None means False, except if the
        rows are mapped by the feature map `table`. With this map, None means to scale the map's
        columns as in factor analysis of mixed data. Numbers and dates are scaled to variance 1.
        The column of a category is divided by the square root of the category's share of rows.
        Columns that mark missing values are multiplied by 0.
    whiten : bool, default False
        If true, `transform` returns components of variance 1, with the divisor N − 1 for N rows.
        `components_` stay orthonormal.

    Notes
    -----
    Components are the orthonormal eigenvectors of the scatter Cxx = Σ w (x − x̄)(x − x̄)ᵀ
    [mathematics §2]. The sum is over all rows x (features,). w is the row's weight, and x̄ is the
    mean of the rows. `eigenvalues_` are the eigenvalues of Cxx. An eigenvalue divided by the sum
    of weights is the variance along the component.

    Covariance and density do not depend on `whiten`. (In scikit-learn they depend on `whiten`,
    because whitened components are multiplied by the variances twice.) If columns are scaled (see
    `standardize`), `explained_variance_` are variances of the scaled columns. Covariance and
    density are in the units of the unscaled columns.

    The state has O(d²) numbers for d features. Learning a row costs O(d²), and solving costs
    O(d³).
    """

    limit: ClassVar[str] = "the rows vary in no more directions than features, or than rows less 1"
    target_kinds: ClassVar[tuple[str, ...]] = ()
    encoding: ClassVar[str] = "none"
    eigenvalue_growth: ClassVar[int] = 1
    standardize_choices: ClassVar[tuple[bool | None, ...]] = (False, True, None)

    n_components: int | float | None = None  # type: ignore[assignment]  # a share of the variance, too
    _: KW_ONLY
    standardize: bool | None = None  # type: ignore[assignment]  # None: by the kind of a table's column
    whiten: bool = False

    def check_parameters(self) -> None:
        """Raise InvalidParameter when a parameter is outside its range."""
        super().check_parameters()
        check_choice("whiten", self.whiten, (False, True))

    def check_n_components(self) -> None:
        """Raise InvalidParameter if n_components is outside its range.

        n_components must be None, an integer ≥ 1, or a float between 0 and 1.
        """
        if not isinstance(self.n_components, float):
            super().check_n_components()
        elif not 0.0 < self.n_components < 1.0:
            raise InvalidParameter(
                f"n_components={self.n_components!r}; as a share of all variance it must lie between 0 and 1, both left out."
            )

    def moments(self, state: State) -> Moments:
        """Return the moments (sums of the rows) of a state.

        The components are computed from the moments. If `standardize` is None and the rows are a
        table, the columns of the moments are scaled as in factor analysis of mixed data.
        """
        m = super().moments(state)
        columns = None
        if self.standardize is None:
            columns = mapped_columns_of_state(state)
        if columns is None:
            return m

        # `numbers`, `categories` and `gaps` are indices of mapped columns, by kind.
        # `factors` has the factor of each column, 1 for columns of other kinds.
        numbers, categories, gaps = columns
        factors = np.ones(len(m.mean))

        # Scale columns of numbers to variance 1.
        factors[numbers] = standardizing_factors(m)[numbers]
        # Divide the column of a category by the root of its mean, the category's share of rows.
        # The factor is 0 if all rows of the category were unlearned.
        factors[categories] = 0.0
        present = categories[m.mean[categories] > 0.0]
        factors[present] = 1.0 / np.sqrt(m.mean[present])
        # Do not use the columns that mark missing values.
        factors[gaps] = 0.0
        return scale_moments(m, factors)

    def component_count(self, eigenvalues: np.ndarray, moments: Moments) -> int:
        """Return the number of components that n_components asks for.

        If n_components is a share of the variance, the result is the smallest number of components
        that explain more than this share.

        eigenvalues: eigenvalues of all components, largest first.
        """
        if not isinstance(self.n_components, float):
            return super().component_count(eigenvalues, moments)
        shares = np.cumsum(eigenvalues) / max(float(moments.diagonal.sum()), np.finfo(float).tiny)
        return min(int(np.searchsorted(shares, self.n_components, side="right")) + 1, len(eigenvalues))

    def make_projection(self, moments: Moments, directions: Directions, solution_kind: str) -> Linear:
        """Return the linear projection to the directions that n_components selects.

        If `whiten` is true, projected rows have variance 1 along every component.

        directions: directions and their eigenvalues.
        solution_kind: kind of solution, such as "exact".
        """
        projection = super().make_projection(moments, directions, solution_kind)
        if not self.whiten:
            return projection
        deviations = np.sqrt(projection.eigenvalues / variance_divisor(moments))
        return projection._replace(loadings=projection.loadings / deviations)

    @property
    def components_(self) -> np.ndarray:
        """Directions (components, features) float64, orthonormal even with `whiten`."""
        components: np.ndarray = super().components_
        return components * np.sqrt(self.explained_variance_)[:, None] if self.whiten else components

    @property
    def components_std_(self) -> np.ndarray:
        """Standard error of each entry of `components_`, float64 (components, features).

        With `whiten`, the standard error includes the uncertainty of the length by which
        components are divided.
        """
        errors = super().components_std_
        return errors * np.sqrt(self.explained_variance_)[:, None] if self.whiten else errors

    @property
    def singular_values_(self) -> np.ndarray:
        """Singular values (components,) of the centred rows.

        Before the decomposition, each row is multiplied by the square root of its weight.
        """
        return np.sqrt(self.eigenvalues_)

    def _learned_gaussian(self) -> GaussianLogLikelihood:
        """Return a Gaussian model of the rows, from the components.

        The principal axes of its covariance are the components. They are for columns that were
        multiplied by factors, if `standardize` requires it. The factors are part of the model.
        """
        projection = self.linear_projection()
        m = self.moments(self.state_)
        # Eigenvalues are sums of squares over the rows.
        variances = projection.eigenvalues / variance_divisor(m)
        # Whitened loadings were divided by the component's standard deviation. Undo this.
        if self.whiten:
            loadings = projection.loadings * np.sqrt(variances)
        else:
            loadings = projection.loadings
        # `total` is the variance summed over all columns.
        total = float(m.diagonal.sum()) / variance_divisor(m)
        # Columns of the moments were multiplied by the factors `m.scale` (features,).
        # Rows vary in at most as many directions as there are rows, or columns of factor above 0.
        max_directions = min(float(np.count_nonzero(m.scale)), m.weight)
        axes = divide_by_scale(loadings, m.scale)
        return GaussianLogLikelihood(projection.mean, axes, variances, total, m.scale, m.weight, max_directions)

    def directions(self, moments: Moments, state: MomentState) -> Directions:
        """Return the eigenvectors and eigenvalues of the rows' scatter.

        Eigenvalues that are only rounding error are left out. Raises NeedsRefine if only the
        diagonal of the scatter is stored.
        """
        if moments.scatter is None:
            raise NeedsRefine(
                "PCA keeps only the diagonal of Cxx here (scatter is diagonal past 4,096 features), and principal axes "
                "cannot be had from it. Call refine(source), give scatter='exact' (dense rows), or use CCIPCA."
            )
        floor = moments.rounding.eigenvalue_floor(moments.diagonal)
        values, vectors = nonzero_semidefinite_eigenpairs(moments.scatter, floor)
        return vectors, values


def variance_divisor(moments: Moments) -> float:
    """Return the divisor by which sums of squares become variances.

    The divisor is the sum of weights minus 1. If the sum of weights is at most 1, the divisor is
    the sum itself.
    """
    if moments.weight > 1.0:
        return moments.weight - 1.0
    return moments.weight
