"""CCIPCA: principal components of very wide streams, updated by row.

The energy of components is the sum of the squares of the projected rows. The following list has
the energy of 10 components of CCIPCA, divided by the largest energy that 10 components can have.
The data are 20,000 generated text rows of 47,236 features (python benchmarks/recurrences.py
energy):

- amnesic = 1: 0.984
- amnesic = 2: 0.972
- amnesic = 4: 0.942
- amnesic = 0: 0.696
- without centring: 0.984, where gensim's LSI has 0.980
"""

from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np

from stream_dr.aliases import JsonDict
from stream_dr.estimators.fitting.estimator import MappedMethod, StateType
from stream_dr.estimators.fitting.linear_gaussian import GaussianLogLikelihood, LinearGaussian
from stream_dr.estimators.fitting.mapping import check_feature_map, merged_mapped_state
from stream_dr.estimators.fitting.parameters import check_choice, check_number_in_range, check_positive_int
from stream_dr.projection import Linear
from stream_dr.statistics.recurrences.block_basis import (
    MOST_COMPONENTS,
    basis_bytes,
    normalise_long_columns,
)
from stream_dr.statistics.recurrences.ccipca_state import CCIPCAAccumulator, CCIPCAState


@dataclass(eq=False, repr=False)
class CCIPCA(MappedMethod[CCIPCAState], LinearGaussian):
    """Find principal components of very wide streams, row by row.

    Candid covariance-free incremental PCA [CCIPCA]. Each row updates the components. Rows may be
    sparse or dense. The method is unsupervised, so y is ignored.

    >>> import numpy as np
    >>> from stream_dr import CCIPCA
    >>> rows = np.random.default_rng(0).normal(size=(500, 3)) * [9.0, 3.0, 1.0]
    >>> int(abs(CCIPCA(n_components=1).fit(rows).components_).argmax())
    0

    If a scatter matrix fits in memory (up to a few thousand features), use `PCA` instead. PCA is
    exact, its states can be merged, and rows can be unlearned. For d features and p components,
    PCA stores d² numbers and CCIPCA stores p vectors.

    Each row changes CCIPCA's components only a little. Components do not rotate or change places
    suddenly, so a classifier trained on projected rows stays valid. The result depends on the
    order of the rows. Therefore CCIPCA does not merge, does not unlearn and takes no weights.

    Parameters
    ----------
    n_components : int ≥ 1, default 2
        Number of components to look for, at most 2,000.
    amnesic : float ≥ 0, default 2.0
        Weight of recent rows, the parameter ℓ of the paper. A larger value gives recent rows more
        weight. Use 1 to 2 for a stream that does not change, and more for a stream that drifts.
        With 0, all rows have the same weight. Then the first rows have too much influence, because
        they were learned while the components were still arbitrary.
    center : bool, default True
        Subtract the running mean.
    feature_map : dict or None, default None
        Spec of a feature map that is applied to the rows first. With the map "nystroem" or
        "random_fourier", the method is approximate kernel PCA.

    Notes
    -----
    The update maintains one vector for each component. `components_` are these vectors, scaled to
    length 1. `eigenvalues_` are the lengths of the vectors, which are estimates of the variances
    along the components.

    Variances, covariance and scores are computed from these estimates, with the number of rows as
    divisor. If rows are not centred, variances are mean squares about zero. The
    formulas assume that the components are orthonormal. This is true only in the limit of many
    rows.

    `rank_` does not count some components:

    - components that have not started,
    - components whose eigenvalue is below 1e-10 of the largest,
    - components past the number of features.

    Learning a row costs O(nonzeros · p + p²) for p components. The state takes 8 · k · (d + 2 k)
    bytes for d features, with k = p + 1 rounded up to a multiple of 8.
    """

    merges_as: ClassVar[str] = "PCA"
    limit: ClassVar[str] = "there are at most as many as features, and a row starts at most one"
    state_type: ClassVar[StateType] = StateType(CCIPCAState)
    fixed: ClassVar[tuple[str, ...]] = ("n_components", "amnesic", "center", "feature_map")

    n_components: int = 2
    amnesic: float = 2.0
    center: bool = True
    feature_map: JsonDict | None = None

    def check_parameters(self) -> None:
        """Raise InvalidParameter if a parameter is outside its range."""
        check_positive_int("n_components", self.n_components, max_value=MOST_COMPONENTS)
        check_number_in_range("amnesic", self.amnesic, low=0.0)
        check_choice("center", self.center, (True, False))
        check_feature_map(self.feature_map)

    def inner_accumulator(self, state: CCIPCAState | None) -> CCIPCAAccumulator:
        """Return an accumulator that learns mapped rows, starting from `state` if it is given."""
        return CCIPCAAccumulator(self.n_components, self.amnesic, self.center, state)

    def solve_inner(self, state: CCIPCAState) -> Linear:
        """Return the projection to a state's components.

        The state has one vector for each component, which is scaled to length 1. If there is a
        feature map, the state and the projection are of mapped rows. Costs O(d p²) for d features
        and p components.
        """
        vectors = state.basis.vectors()[:, : state.n_features]
        loadings, eigenvalues = normalise_long_columns(vectors, min_relative_length=1e-10)
        if self.center:
            mean = state.basis.means()[:, 0].copy()
        else:
            mean = np.zeros(state.n_features)
        return Linear(mean, loadings, eigenvalues, "recurrence")

    @property
    def singular_values_(self) -> np.ndarray:
        """Singular values (components,) of the centred rows.

        For n rows, the values are √(n · eigenvalues_).
        """
        return np.sqrt(self.n_samples_seen_ * self.eigenvalues_)

    def _learned_gaussian(self) -> GaussianLogLikelihood:
        """Return a Gaussian model of the rows, with components as axes."""
        projection = self.linear_projection()
        mean = projection.mean
        axes = projection.loadings
        variances = projection.eigenvalues
        state = cast(CCIPCAState, merged_mapped_state(self.state_))
        d = len(mean)
        n = state.rows
        total = float(state.variance[0])
        return GaussianLogLikelihood(mean, axes, variances, total, np.ones(d), n, min(d, n))

    def inner_bytes(self, n_features: int, n_targets: int) -> int:
        """Return the size of the state in bytes.

        The size is 8 · k · (d + 2 k).

        k is the number of components, plus 1 if the rows are centred, rounded up to a multiple of
        8. d is `n_features`, the number of features after the feature map.
        """
        return basis_bytes(n_features, self.n_components, int(self.center))
