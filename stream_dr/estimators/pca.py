"""PCA: principal components from exact moments."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from stream_dr.errors import InvalidParameter
from stream_dr.estimators.fitting.closed_form import ClosedForm, Directions
from stream_dr.estimators.fitting.linear_gaussian import Gaussian, LinearGaussian
from stream_dr.estimators.fitting.mapping import table_columns
from stream_dr.estimators.fitting.moments import Moments, rescaled, unscaled
from stream_dr.estimators.fitting.not_fitted import NeedsRefine
from stream_dr.estimators.fitting.parameter_checks import check_choice
from stream_dr.projection import Linear
from stream_dr.solve.spectral import symmetric


@dataclass(eq=False, repr=False)
class PCA(LinearGaussian, ClosedForm):
    """Principal component analysis: eigenvectors of Cxx, exact from one pass, mergeable and unlearnable [mathematics §2].

    Orthonormal, at most min(features, rows − 1). Eigenvalues are those of Cxx = Σ w (x − x̄)(x − x̄)ᵀ: divided by N they
    are variances.

    Fitted attributes and scores are those of scikit-learn's PCA, weights counting as repetition; covariance and density are
    the same with `whiten` as without (scikit-learn's take the variances twice there). With scaled columns
    (`standardize`) variances are those of the scaled columns; rows, covariance and density are in the columns' own units.

    State: O(d²). Learning a row costs O(d²); solving O(d³). Unsupervised: y is ignored.

    Where only the diagonal of Cxx is kept (more than 4,096 features) there is no answer from it, since the diagonal's
    eigenvectors are the features themselves: transform raises NeedsRefine, naming `refine` and CCIPCA.

    Parameters
    ----------
    n_components : int, float in (0, 1) or None, default None
        How many; a share: as few as explain more than that share of all variance; None: all.
    standardize : bool or None, default None
        Solve as if every feature had variance 1. None is False, except for the columns that `table` makes. Those are scaled
        as factor analysis of mixed data does. Numbers and dates have variance 1, the column of a category is divided by the
        root of its share, and columns that say that a value is missing are left out.
    whiten : bool, default False
        `transform` gives every component variance 1 (divisor N − 1); `components_` stay orthonormal.

    >>> from stream_dr import PCA
    >>> PCA(n_components=1).fit([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]).components_.round(3).tolist()
    [[0.707, 0.707]]
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
        """Raise InvalidParameter unless n_components is None, a whole number ≥ 1 or a share in (0, 1)."""
        if not isinstance(self.n_components, float):
            super().check_components()
        elif not 0.0 < self.n_components < 1.0:
            raise InvalidParameter(
                f"n_components={self.n_components!r}; as a share of all variance it must lie between 0 and 1, both left out."
            )

    def moments(self, state: Any) -> Moments:
        """Return the moments that a state is solved from.

        With `standardize` None, a table's columns are scaled as in factor analysis of mixed data.
        """
        m = super().moments(state)
        columns = table_columns(state) if self.standardize is None else None
        if columns is None:
            return m

        numbers, categories, gaps = columns
        varying, present = numbers[m.rounding.varying(m.diagonal)[numbers]], categories[m.mean[categories] > 0.0]
        factor = np.ones(len(m.mean))
        factor[varying] = np.sqrt(m.weight / m.diagonal[varying])
        # A category whose rows were all unlearned has only rounding left.
        factor[categories] = 0.0
        factor[present] = 1.0 / np.sqrt(m.mean[present])
        factor[gaps] = 0.0
        return rescaled(m, factor)

    def wanted(self, eigenvalues: np.ndarray, moments: Moments) -> int:
        """How many components: given, or as many as explain the share that is given."""
        if not isinstance(self.n_components, float):
            return super().wanted(eigenvalues, moments)
        shares = np.cumsum(eigenvalues) / max(float(moments.diagonal.sum()), np.finfo(float).tiny)
        return min(int(np.searchsorted(shares, self.n_components, side="right")) + 1, len(eigenvalues))

    def finished(self, moments: Moments, found: Directions, solution: str) -> Linear:
        """The projection, of unit variance where `whiten`."""
        projection = super().finished(moments, found, solution)
        if not self.whiten:
            return projection
        return projection._replace(loadings=projection.loadings / np.sqrt(projection.eigenvalues / freedom(moments)))

    @property
    def components_(self) -> np.ndarray:
        """(components, features) float64, orthonormal, whitened or not."""
        components: np.ndarray = super().components_
        return components * np.sqrt(self.explained_variance_)[:, None] if self.whiten else components

    @property
    def singular_values_(self) -> np.ndarray:
        """(components,) of the centred rows, each times √weight."""
        return np.sqrt(self.eigenvalues_)

    def _unwhitened(self, Z: np.ndarray) -> np.ndarray:
        return Z * np.sqrt(self.explained_variance_) if self.whiten else Z

    def _gaussian(self) -> Gaussian:
        projection: Any = self.projection()
        m = self.moments(self.state_)
        variances = projection.eigenvalues / freedom(m)
        loadings = projection.loadings * np.sqrt(variances) if self.whiten else projection.loadings
        total = float(m.diagonal.sum()) / freedom(m)
        most = min(float(np.count_nonzero(m.scale)), m.weight)
        axes = unscaled(loadings, m.scale)
        return Gaussian(projection.mean, axes, variances, total, m.scale, m.weight, most)

    def directions(self, moments: Moments, state: Any) -> Directions:
        """Eigenvectors above the rank cut."""
        if moments.scatter is None:
            raise NeedsRefine(
                "PCA keeps only the diagonal of Cxx here (scatter is diagonal past 4,096 features), and principal axes "
                "cannot be had from it. Call refine(source), give scatter='exact', or use CCIPCA."
            )
        values, vectors = symmetric(moments.scatter, moments.rounding.floor(moments.diagonal))
        return vectors, values


def freedom(moments: Moments) -> float:
    """What summed scatter is divided by for a variance: N − 1; N where that is not positive."""
    return moments.weight - 1.0 if moments.weight > 1.0 else moments.weight
