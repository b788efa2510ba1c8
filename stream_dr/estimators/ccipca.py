"""CCIPCA: principal components updated row by row, for very wide streams.

Measured quality: CCIPCA's 10 components after 20,000 generated text rows of 47,236 features hold
this share of the energy (summed squares) that the best 10 components hold (python
benchmarks/recurrences.py energy, 20,000 rows):

- amnesic = 1: 0.984
- amnesic = 2: 0.972
- amnesic = 4: 0.942
- amnesic = 0: 0.696
- without centring, to compare with gensim's LSI: CCIPCA 0.984, gensim's LSI 0.980
"""

from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np

from stream_dr.aliases import JsonDict
from stream_dr.estimators.fitting.linear_gaussian import Gaussian, LinearGaussian
from stream_dr.estimators.fitting.mapping import (
    StateType,
    check_feature_map,
    inner_state,
    make_accumulator,
    mapped_bytes,
    solve_mapped,
)
from stream_dr.estimators.fitting.parameter_checks import check_choice, check_number, check_positive_int
from stream_dr.projection import Linear, Projection
from stream_dr.statistics.protocol import Accumulator, State
from stream_dr.statistics.recurrences.basis_state import long_unit_columns
from stream_dr.statistics.recurrences.block_basis import MOST_COMPONENTS, basis_bytes
from stream_dr.statistics.recurrences.ccipca_state import CCIPCAAccumulator, CCIPCAState


@dataclass(eq=False, repr=False)
class CCIPCA(LinearGaussian):
    """Find principal components of streams too wide for a scatter matrix.

    Candid covariance-free incremental PCA [CCIPCA], updated row by row, sparse or dense.
    Unsupervised: y is ignored.

    >>> import numpy as np
    >>> from stream_dr import CCIPCA
    >>> rows = np.random.default_rng(0).normal(size=(500, 3)) * [9.0, 3.0, 1.0]
    >>> int(abs(CCIPCA(n_components=1).fit(rows).components_).argmax())
    0

    If a scatter matrix fits in memory (up to a few thousand features), use `PCA`, which is exact,
    merges and unlearns. For d features and p components, CCIPCA stores p vectors and PCA d²
    numbers. CCIPCA's components move smoothly from row to row, so a classifier trained on the
    projected rows is not misled by components that rotate or change places. The result depends on
    the order of the rows, so CCIPCA does not merge, does not unlearn and takes no weights.

    Parameters
    ----------
    n_components : int ≥ 1, default 2
        Number of components to look for, at most 2,000.
    amnesic : float ≥ 0, default 2.0
        Parameter ℓ of the paper. The larger it is, the more recent rows weigh. Use 1 to 2 for a
        stream that does not change, and more for a stream that drifts. With 0, the first rows keep
        their weight for ever, although they were learned while the vectors were still arbitrary.
    center : bool, default True
        Subtract the running mean.
    feature_map : dict or None, default None
        Spec of a feature map that is applied to the rows first. With nystroem or random_fourier
        this is approximate kernel PCA.

    Notes
    -----
    `components_` have length 1. `eigenvalues_` are the lengths ‖v_i‖ of the vectors that the
    update maintains, which estimate the eigenvalues in the unit of X². Variances, covariance and
    scores are computed from these estimates. Their divisor is the number n of rows. They are about
    zero instead of the mean if rows are not centred. They assume orthonormal `components_`, which
    holds only in the limit.

    `rank_` is the number of components. It does not count components that have not started,
    components whose eigenvalue is below 1e-10 of the largest, and components past the number of
    features, which hold only remainders of the update.

    Learning a row costs O(nonzeros · p + p²) for p components. State: 8 · k · (d + 2 k) bytes for
    d features, with k = p + 1 rounded up to a multiple of 8.
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
        """Raise InvalidParameter if a parameter is outside its range.

        n_components is 1 to 2,000, amnesic at least 0, center a bool.
        """
        check_positive_int("n_components", self.n_components, most=MOST_COMPONENTS)
        check_number("amnesic", self.amnesic, low=0.0)
        check_choice("center", self.center, (True, False))
        check_feature_map(self.feature_map)

    def accumulator(self, state: State | None = None) -> Accumulator:
        """Return an accumulator that is empty or continues from `state`."""
        return make_accumulator(self.feature_map, self._recurrence, state)

    def _recurrence(self, state: CCIPCAState | None) -> CCIPCAAccumulator:
        return CCIPCAAccumulator(self.n_components, self.amnesic, self.center, state)

    def solve(self, state: State) -> Projection:
        """Return the projection of `state`, with vectors scaled to length 1.

        Costs O(d p²) for d features and p components.
        """
        return solve_mapped(state, self._unit_vectors)

    def _unit_vectors(self, state: CCIPCAState) -> Linear:
        vectors = state.basis.vectors()[:, : state.n_features]
        loadings, eigenvalues = long_unit_columns(vectors, smallest=1e-10)
        mean = state.basis.means()[:, 0].copy() if self.center else np.zeros(state.n_features)
        return Linear(mean, loadings, eigenvalues, "recurrence")

    @property
    def singular_values_(self) -> np.ndarray:
        """Singular values (components,) of the centred rows.

        They are √(n · eigenvalues_) for n rows.
        """
        return np.sqrt(self.n_samples_seen_ * self.eigenvalues_)

    def _learned_gaussian(self) -> Gaussian:
        projection = self.linear_projection()
        state = inner_state(self.state_)
        d, n = len(projection.mean), state.rows
        return Gaussian(
            projection.mean,
            projection.loadings,
            projection.eigenvalues,
            float(cast(CCIPCAState, state).variance[0]),
            np.ones(d),
            n,
            min(d, n),
        )

    def state_bytes(self, n_features: int, n_targets: int) -> int:
        """Return the size of the state in bytes, 8 · k · (d + 2 k).

        k is the number of components, plus 1 if the rows are centred, rounded up to a multiple of
        8. d is the number of features, after the feature map if there is one.
        """
        return mapped_bytes(self.feature_map, self._basis_bytes, n_features, n_targets)

    def _basis_bytes(self, n_features: int, n_targets: int) -> int:
        return basis_bytes(n_features, self.n_components, int(self.center))
