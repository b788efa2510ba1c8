"""State of CCIPCA: p vectors and the running mean.

The method is from [CCIPCA, section 2; mathematics §6]. CCIPCA is candid covariance-free
incremental PCA. The length of a vector is its eigenvalue. Let x be row number n, and u_1 = x −
(mean of the first n rows). Without centring, u_1 = x. The vectors v_1, v_2, … are updated one
after the other. Vector v_i is updated with u_i, and then the part of u_i along v_i is subtracted
from u_i:

    v_i ← (n−1−ℓ)/n v_i + (1+ℓ)/n u_i (u_iᵀ v_i)/‖v_i‖
    u_{i+1} = u_i − (u_iᵀ v_i) v_i/‖v_i‖²

ℓ is the amnesic parameter. It counts as 0 while n ≤ ℓ + 1.

If there are fewer than p vectors, the residual u (the row without its parts along all vectors)
becomes a new vector. The conditions are |u|² > 1e-10 |u_1|² and |u_1| > 64 eps |x|. As in the
paper, the new vector is u itself, although vectors later have the unit of x². So the result
depends on the scale of the data.

Lengths are computed from inner products. So a residual that is shorter than 1e-6 of the terms that
it is computed from is only rounding error, and adds no vector. (If lengths were computed from
features, the limit could be 1e-14.) For dense rows the limit makes no difference, because dense
rows are shifted first.

A row costs O(nonzeros · (p + 1) + p (p + 1)). `basis_bytes` (block_basis.py) returns the memory.
"""

from typing import NamedTuple

import numpy as np

from stream_dr.batch.block import Block
from stream_dr.batch.targets import Label
from stream_dr.checks import check_at_least, check_common_state_fields, check_dtype_and_shapes
from stream_dr.statistics.protocol import AccumulatorBase
from stream_dr.statistics.recurrences.block_basis import BasisState, BlockBasis


class CCIPCAState(NamedTuple):
    """State of CCIPCA (candid covariance-free incremental PCA).

    Attributes
    ----------
    rows, rows_skipped, n_features, target_kind, labels
        Numbers of rows and features, as in every state (protocol.py). CCIPCA has no targets and
        skips no rows.
    basis : BasisState
        The vectors (estimates of the eigenvectors, scaled by their eigenvalues). If rows are
        centred, also the sum of the rows.
    variance : (1,) float64
        Mean squared length of the centred rows. An eigenvalue divided by this mean is the
        explained share of the variance. Recent rows have the same additional weight as in the
        vectors.
    """

    rows: int
    rows_skipped: int
    n_features: int
    target_kind: str | None
    labels: tuple[Label, ...]
    basis: BasisState
    variance: np.ndarray

    def check(self) -> None:
        """Raise DamagedFile unless `basis` and `variance` fit the other fields."""
        check_common_state_fields(self, ())
        self.basis.check(self.n_features, min(len(self.basis.counts), 1), self.rows)
        check_dtype_and_shapes(self, np.float64, variance=(1,))
        check_at_least(self, 0.0, "variance")


class CCIPCAAccumulator(AccumulatorBase):
    """Accumulator that learns rows by CCIPCA, one after the other.

    CCIPCA is candid covariance-free incremental PCA. Only one thread may change the accumulator.
    `add` makes all checks before it changes anything. `freeze` returns a CCIPCAState.

    components: number of vectors.
    amnesic: parameter of the method. The larger it is, the more weight recent rows have.
    center: True to subtract the running mean from rows.
    state: state to continue from, or None.
    """

    rows_skipped = 0
    target_kind = None
    labels: tuple[Label, ...] = ()

    def __init__(self, components: int, amnesic: float, center: bool, state: CCIPCAState | None = None) -> None:
        self._amnesic = float(amnesic)
        self.rows = 0 if state is None else int(state.rows)
        self._variance = np.zeros(1) if state is None else state.variance.copy()
        self._basis = BlockBasis(components, int(center), bool(center), None if state is None else state.basis)

    @property
    def n_features(self) -> int:
        """Number of features so far."""
        return self._basis.features

    def add(self, block: Block) -> None:
        """Learn a batch of rows. Targets are ignored.

        Raises InvalidWeights, WidthMismatch or InvalidRows.
        """
        self._basis.check(block, "CCIPCA")
        if block.rows:
            self._basis.start(block, subtract_first_row=self._basis.centred)
            self._basis.learn(block.X, self.rows, self._amnesic, 0.0, self._variance, None)
            self.rows += block.rows

    def freeze(self) -> CCIPCAState:
        """Return a copy of the vectors as a CCIPCAState.

        Costs O(d p) for d features and p vectors.
        """
        return CCIPCAState(self.rows, 0, self.n_features, None, (), self._basis.freeze(), self._variance.copy())
