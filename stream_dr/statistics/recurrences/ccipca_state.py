"""State of CCIPCA: p vectors and the running mean [CCIPCA, section 2; mathematics §6].

The length of a vector is its eigenvalue. Row n starts with u_1 = x − x̄(n), or x without centring.
Each live component i in order is updated, then the row is deflated:

    v_i ← (n−1−ℓ)/n v_i + (1+ℓ)/n u_i (u_iᵀ v_i)/‖v_i‖
    u_{i+1} = u_i − (u_iᵀ v_i) v_i/‖v_i‖²

The amnesic parameter ℓ counts as 0 while n ≤ ℓ + 1. The first component that is not live yet takes
the residual u as it is, if |u|² > 1e-10 |u_1|² and |u_1| > 64 eps |x|, and the row ends there.
Starting from v = u is not scale-free, since v later has the unit of x². It is what the paper does.

A row costs O(nonzeros · (p + 1) + p (p + 1)). Memory is that of `basis_bytes` (block_basis.py).

In Gram form, a residual shorter than 1e-6 of its terms is rounding and starts no component. Row by
row on features, 1e-14 would do. Dense rows are shifted first, so it makes no difference for them.
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
        As in every state.
    basis : BasisState
        Its vectors and, if centred, the sum of rows.
    variance : (1,) float64
        Mean of |u_1|² by the same amnesic weights. Each eigenvalue is a share of it.
    """

    rows: int
    rows_skipped: int
    n_features: int
    target_kind: str | None
    labels: tuple[Label, ...]
    basis: BasisState
    variance: np.ndarray

    def check(self) -> None:
        """Raise DamagedFile unless basis and variance are those of a stream of n_features."""
        check_learned(self, ())
        self.basis.check(self.n_features, min(len(self.basis.counts), 1), self.rows)
        check_array_shapes(self, np.float64, variance=(1,))
        check_at_least(self, 0.0, "variance")


class CCIPCAAccumulator(AccumulatorBase):
    """The mutable side of CCIPCAState, with one owner.

    Rows come in order, and `add` checks everything before it writes.
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
        """Width so far."""
        return self._basis.features

    def add(self, block: Block) -> None:
        """Learn a batch of rows. Targets are ignored.

        Raises InvalidWeights, WidthMismatch, InvalidRows.
        """
        self._basis.check(block, "CCIPCA")
        if block.rows:
            self._basis.start(block, shift=self._basis.centred)
            self._basis.learn(block.X, self.rows, self._amnesic, self._variance, None)
            self.rows += block.rows

    def freeze(self) -> CCIPCAState:
        """Return the State so far. Later adds do not change it. Costs O(d p)."""
        return CCIPCAState(self.rows, 0, self.n_features, None, (), self._basis.freeze(), self._variance.copy())
