"""State of incremental SKM: p vectors and class means [SKM, eq. 22, 23; mathematics §6].

The length of a vector is its eigenvalue. Each class has the sum and the number of its rows. Row n
of class l first updates the number and the mean of l. With u_1 = x, the class means m_1j and
q_j = n_j/n − a·[j = l], each live component i in order is

    v_i ← (n−1)/n v_i + 1/n Σ_j q_j (u_i − m_ij)(u_i − m_ij)ᵀ v_i/‖v_i‖

Then u and every m_j lose their part along v_i. Eq. 23 deflates the sample alone, but then u − m_j
would not be the deflated difference.

The first component that is not live yet takes the residual u, if |u|² > 1e-10 |u_1|², and the row
ends there. Dense rows are shifted by the first row learned. This changes no difference and keeps
an origin far off out of the start. Sparse rows are not shifted.

A class that comes late gets a column of its own. A class without rows has no weight.

A row costs O(nonzeros · (p + c) + p (c + 1)(p + c)). Memory is that of `basis_bytes`
(block_basis.py).
"""

from typing import NamedTuple

import numpy as np

from stream_dr.checks import check_learned
from stream_dr.rows.block import Block
from stream_dr.statistics.protocol import AccumulatorBase
from stream_dr.statistics.recurrences.basis_state import BasisState
from stream_dr.statistics.recurrences.block_basis import BlockBasis
from stream_dr.targets.label_codes import Label
from stream_dr.targets.targets import Targets, check_label_type, labelled_rows, refuse_kind


class SKMState(NamedTuple):
    """State of incremental SKM.

    `basis` holds its vectors and the sums and counts of rows by class, in `labels`' order.
    """

    rows: int
    rows_skipped: int
    n_features: int
    target_kind: str | None
    labels: tuple[Label, ...]
    basis: BasisState

    def check(self) -> None:
        """Raise DamagedFile unless the basis is that of a stream of n_features and labels."""
        check_learned(self, ("class",))
        self.basis.check(self.n_features, len(self.labels), self.rows)


class SKMAccumulator(AccumulatorBase):
    """The mutable side of SKMState, with one owner.

    Rows come in order, and `add` checks everything before it writes.
    """

    def __init__(self, components: int, a: float, state: SKMState | None = None) -> None:
        self._a = float(a)
        self.rows = 0 if state is None else int(state.rows)
        self.rows_skipped = 0 if state is None else int(state.rows_skipped)
        self.target_kind = None if state is None else state.target_kind
        self.labels: tuple[Label, ...] = () if state is None else tuple(state.labels)
        self._place = {label: i for i, label in enumerate(self.labels)}
        self._basis = BlockBasis(components, len(self.labels), state=None if state is None else state.basis)

    @property
    def n_features(self) -> int:
        """Width so far."""
        return self._basis.features

    def add(self, block: Block) -> None:
        """Learn a batch. Rows without a target are skipped and counted.

        Raises InvalidWeights, WidthMismatch, InvalidRows, TargetKindMismatch or InvalidTargets.
        """
        self._basis.check(block, "IncrementalSKM")
        if block.y is not None:
            self._check_targets(block.y)
        known, skipped = labelled_rows(block)
        if known.rows:
            self.target_kind = "class"
            codes = self._codes(known.y)
            self._basis.start(known, shift=True)
            self._basis.grow(known.features, len(self.labels))
            self._basis.learn(known.X, self.rows, self._a, None, codes)
            self.rows += known.rows
        self.rows_skipped += skipped

    def freeze(self) -> SKMState:
        """Return the State so far. Later adds do not change it. Costs O(d (p + c))."""
        return SKMState(
            self.rows, self.rows_skipped, self.n_features, self.target_kind, self.labels, self._basis.freeze()
        )

    def _check_targets(self, targets: Targets) -> None:
        if targets.kind != "class":
            refuse_kind(targets.kind, ("class",))
        check_label_type(self.labels, targets.labels)

    def _codes(self, targets: Targets) -> np.ndarray:
        """Return the rows' classes (rows,) as columns of this state.

        New labels are added in order of appearance.
        """
        place = self._place
        if not all(label in place for label in targets.labels):
            used, first = np.unique(targets.codes, return_index=True)
            for code in used[np.argsort(first)]:
                place.setdefault(targets.labels[code], len(place))
            self.labels = tuple(place)
        table = np.array([place.get(label, -1) for label in targets.labels], dtype=np.int64)
        return table[targets.codes]
