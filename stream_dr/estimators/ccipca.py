"""CCIPCA: principal components by a recurrence, for streams wider than a scatter matrix can be kept for.

How close it comes, as the share of the best 10 dimensions' energy that its 10 hold after 20,000 generated text rows of
47,236 features (python benchmarks/recurrences.py energy --rows 20000): amnesic = 1: 0.984, 2: 0.972, 4: 0.942, 0: 0.696;
without centring, where gensim's LSI can be compared: 0.984 against 0.980.

So: keep amnesic between 1 and 2. At 0 the first rows, learned while the vectors still pointed anywhere, weigh for ever;
the more above 2, the fewer recent rows the answer rests on, which is what a drifting stream wants and a steady one does
not. Where a scatter matrix fits (d up to a few thousand), `PCA` is exact, merges and unlearns; use it.

Why this way: a recurrence keeps p vectors where exact PCA keeps d² numbers, and its answer moves smoothly from row to
row, so what is trained behind it (a classifier in a river pipeline) is not thrown off by components that turn or swap.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from stream_dr.estimators.fitting.linear_gaussian import Gaussian, LinearGaussian
from stream_dr.estimators.fitting.mapping import (
    StateType,
    accumulate,
    check_feature_map,
    inner_state,
    mapped_bytes,
    solved,
)
from stream_dr.estimators.fitting.parameter_checks import check_choice, check_number, check_positive_int
from stream_dr.projection import Linear, Projection
from stream_dr.statistics.recurrences.basis_state import unit_columns
from stream_dr.statistics.recurrences.block_basis import MOST_COMPONENTS, basis_bytes
from stream_dr.statistics.recurrences.ccipca import CCIPCAAccumulator, CCIPCAState


@dataclass(eq=False, repr=False)
class CCIPCA(LinearGaussian):
    """Candid covariance-free incremental PCA [CCIPCA]: sample by sample exactly, sparse or dense. Unsupervised.

    `components_` have unit length; `eigenvalues_` are the recurrence's own estimates ‖v_i‖ in the unit of X². Variances,
    covariance and scores are by those estimates (divisor n; about zero where not centred), as if `components_` were
    orthonormal, which they are in the limit. Left out are components not started, those below 1e-10 of the largest, and
    those past as many as there are features, which hold what the recurrence has left over; `rank_` says how many there
    are.

    Cost: a row O(nonzeros · p + p²); memory 8 · k · (d + 2 k) bytes, k = p + 1 to the next 8. Does not merge, does not
    unlearn: its answer depends on the order of rows. Weights are left out: the recurrence has no place for them.

    Parameters
    ----------
    n_components : int ≥ 1, default 2
        Components looked for, at most 2,000.
    amnesic : float ≥ 0, default 2.0
        ℓ of the paper: recent rows weigh more. Between 1 and 2 for a steady stream, above for one that drifts.
    center : bool, default True
        Subtract the running mean.
    feature_map : dict or None, default None
        Spec of a map that rows go through first; with nystroem or random_fourier this is kernel PCA, approximately.
    """

    merges_as: ClassVar[str] = "PCA"
    limit: ClassVar[str] = "there are at most as many as features, and a row starts at most one"
    state_type: ClassVar[Any] = StateType(CCIPCAState)
    fixed: ClassVar[tuple[str, ...]] = ("n_components", "amnesic", "center", "feature_map")

    n_components: int = 2
    amnesic: float = 2.0
    center: bool = True
    feature_map: dict[str, Any] | None = None

    def check_parameters(self) -> None:
        """Raise InvalidParameter for n_components < 1 or above 2,000, amnesic < 0 or a center that is not a bool."""
        check_positive_int("n_components", self.n_components, most=MOST_COMPONENTS)
        check_number("amnesic", self.amnesic, low=0.0)
        check_choice("center", self.center, (True, False))
        check_feature_map(self.feature_map)

    def accumulator(self, state: Any = None) -> Any:
        """A new accumulator, or one that goes on from `state`."""
        return accumulate(self.feature_map, self._recurrence, state)

    def _recurrence(self, state: Any) -> CCIPCAAccumulator:
        return CCIPCAAccumulator(self.n_components, self.amnesic, self.center, state)

    def solve(self, state: Any) -> Projection:
        """The projection of `state`: its vectors, each divided by its length. O(d p²)."""
        return solved(state, self._unit_vectors)

    def _unit_vectors(self, state: CCIPCAState) -> Linear:
        vectors = state.basis.vectors()[:, : state.n_features]
        loadings, eigenvalues = unit_columns(vectors, smallest=1e-10)
        mean = state.basis.means()[:, 0].copy() if self.center else np.zeros(state.n_features)
        return Linear(mean, loadings, eigenvalues, "recurrence")

    @property
    def singular_values_(self) -> np.ndarray:
        """(components,) of the centred rows: √(n · eigenvalues_)."""
        return np.sqrt(self.n_samples_seen_ * self.eigenvalues_)

    def _gaussian(self) -> Gaussian:
        projection: Any = self.projection()
        state = inner_state(self.state_)
        d, n = len(projection.mean), state.rows
        return Gaussian(
            projection.mean,
            projection.loadings,
            projection.eigenvalues,
            float(state.variance[0]),
            np.ones(d),
            n,
            min(d, n),
        )

    def state_bytes(self, n_features: int, n_targets: int) -> int:
        """8 · k · (d + 2 k), k = p + 1 to the next multiple of 8, d as mapped where there is a map."""
        return mapped_bytes(self.feature_map, self._basis_bytes, n_features, n_targets)

    def _basis_bytes(self, n_features: int, n_targets: int) -> int:
        return basis_bytes(n_features, self.n_components, int(self.center))
