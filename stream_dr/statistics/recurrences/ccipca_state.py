"""State of CCIPCA: p vectors and the running mean [CCIPCA, section 2; mathematics §6].

The length of a vector is its eigenvalue. Row number n starts with u_1 = x − x̄(n), or u_1 = x
without centring. The started vectors v_1, v_2, … are updated in order, and each takes its part off
the row:

    v_i ← (n−1−ℓ)/n v_i + (1+ℓ)/n u_i (u_iᵀ v_i)/‖v_i‖
    u_{i+1} = u_i − (u_iᵀ v_i) v_i/‖v_i‖²

The amnesic parameter ℓ counts as 0 while n ≤ ℓ + 1. The first vector that has not been started yet
becomes the remaining row u, if |u|² > 1e-10 |u_1|² and |u_1| > 64 eps |x|. The row ends there.
Starting from v = u depends on the scale of the data, since v later has the unit of x². The paper
does it so.

A row costs O(nonzeros · (p + 1) + p (p + 1)). Memory is that of `basis_bytes` (block_basis.py).

Lengths are computed from inner products. So a remaining row shorter than 1e-6 of the terms it is
computed from is rounding, and starts no vector. (Computed from features, the limit could be
1e-14.) Dense rows are shifted first, so the limit makes no difference for them.
"""

from typing import NamedTuple

import numpy as np

from stream_dr.checks import check_array_shapes, check_at_least, check_learned
from stream_dr.rows.block import Block
from stream_dr.statistics.protocol import AccumulatorBase
from stream_dr.statistics.recurrences.basis_state import BasisState
from stream_dr.statistics.recurrences.block_basis import BlockBasis
from stream_dr.targets.label_codes import Label


class CCIPCAState(NamedTuple):
    """State of CCIPCA.

    Attributes
    ----------
    rows, rows_skipped, n_features, target_kind, labels
        As in every state (protocol.py). CCIPCA has no targets and skips no rows.
    basis : BasisState
        The vectors and, if rows are centred, the sum of the rows.
    variance : (1,) float64
        Mean squared length of the centred rows, with the same amnesic weights as the vectors. An
        eigenvalue divided by it is the share of variance.
    """

    rows: int
    rows_skipped: int
    n_features: int
    target_kind: str | None
    labels: tuple[Label, ...]
    basis: BasisState
    variance: np.ndarray

    def check(self) -> None:
        """Raise DamagedFile unless `basis` and `variance` fit n_features and rows."""
        check_learned(self, ())
        self.basis.check(self.n_features, min(len(self.basis.counts), 1), self.rows)
        check_array_shapes(self, np.float64, variance=(1,))
        check_at_least(self, 0.0, "variance")


class CCIPCAAccumulator(AccumulatorBase):
    """Accumulator that learns rows by the recurrence CCIPCA.

    It has one owner, and rows are learned in order. `add` checks everything before it writes.
    `freeze` returns a CCIPCAState.

    components: number of vectors.
    amnesic: parameter ℓ of the recurrence. Larger values weigh new rows more.
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

        Raises InvalidWeights, WidthMismatch, InvalidRows, InvalidIndex or NotFinite.
        """
        self._basis.check(block, "CCIPCA")
        if block.rows:
            self._basis.start(block, shift=self._basis.centred)
            self._basis.learn(block.X, self.rows, self._amnesic, self._variance, None)
            self.rows += block.rows

    def freeze(self) -> CCIPCAState:
        """Return the state so far, which later rows do not change.

        Costs O(d p) for d features and p vectors.
        """
        return CCIPCAState(self.rows, 0, self.n_features, None, (), self._basis.freeze(), self._variance.copy())
