"""State of incremental SKM: p vectors and the class means.

Incremental SKM is the incremental supervised Kampong measure [SKM, eq. 22, 23; mathematics §6].
The length of a vector is its eigenvalue. Let x be row number n, of class l. First, x is added to
the mean of class l. Then let u_1 = x, and m_1j the mean of class j. The vectors v_1, v_2, … are
updated one after the other:

    v_i ← (n−1−ℓ)/n v_i + (1+ℓ)/n Σ_j q_j (u_i − m_ij)(u_i − m_ij)ᵀ v_i/‖v_i‖

ℓ is the amnesic parameter of CCIPCA, which the paper's equation does not have. It counts as 0 while
n ≤ ℓ + 1. The start of a vector is a row, and its length may be a hundred times the eigenvalue. With
ℓ = 0, its wrong direction then fades only as n^−(1 − λ_2/λ_1) for eigenvalues λ.

If n_j of the n rows are of class j, q_j is n_j/n, minus the parameter a if j = l. After each
vector, u_i and all m_ij lose their parts along the vector, which gives u_{i+1} and m_{i+1,j}. (Eq.
23 subtracts the part from the row only. Then u − m_j would still have a part along the vector.)

If there are fewer than p vectors, the residual u (the row without its parts along all vectors)
becomes a new vector. The condition is |u|² > 1e-10 |u_1|².

The first dense row is subtracted from all dense rows. This does not change differences of rows.
Without it, the first vector would be the mean if the data are far from the origin. Nothing is
subtracted from sparse rows.

A class that comes late gets a new mean. A class without rows has no weight.

With c classes a row costs O(nonzeros · (p + c) + p (c + 1)(p + c)). `basis_bytes` (block_basis.py)
returns the memory.
"""

from typing import NamedTuple

import numpy as np

from stream_dr.batch.block import Block
from stream_dr.batch.targets import Label, Targets, drop_rows_without_target
from stream_dr.checks import check_common_state_fields
from stream_dr.statistics.protocol import AccumulatorBase
from stream_dr.statistics.recurrences.block_basis import BasisState, BlockBasis


class SKMState(NamedTuple):
    """State of incremental SKM (supervised Kampong measure).

    Attributes
    ----------
    rows, rows_skipped, n_features, target_kind, labels
        Numbers of rows and features, kind of targets and labels, as in every state (protocol.py).
    basis : BasisState
        The vectors (the components), and for each class the sum and the number of its rows.
        Classes are in the order of `labels`.
    """

    rows: int
    rows_skipped: int
    n_features: int
    target_kind: str | None
    labels: tuple[Label, ...]
    basis: BasisState

    def check(self) -> None:
        """Raise DamagedFile unless `basis` fits the other fields."""
        check_common_state_fields(self, ("class",))
        self.basis.check(self.n_features, len(self.labels), self.rows)


class SKMAccumulator(AccumulatorBase):
    """Accumulator that learns rows one by one by incremental SKM.

    Incremental SKM is the incremental supervised Kampong measure. Only one thread may change the
    accumulator. `add` makes all checks before it changes anything. `freeze` returns an SKMState.

    components: number of vectors.
    a: parameter of the method. The larger it is, the closer together are the projected rows of
        one class.
    amnesic: parameter of the method. The larger it is, the more weight recent rows have.
    state: state to continue from, or None.
    """

    def __init__(self, components: int, a: float, amnesic: float, state: SKMState | None = None) -> None:
        self._a = float(a)
        self._amnesic = float(amnesic)
        self.rows = 0 if state is None else int(state.rows)
        self.rows_skipped = 0 if state is None else int(state.rows_skipped)
        self.target_kind = None if state is None else state.target_kind
        self.labels: tuple[Label, ...] = () if state is None else tuple(state.labels)
        self._place = {label: i for i, label in enumerate(self.labels)}
        self._basis = BlockBasis(components, len(self.labels), state=None if state is None else state.basis)

    @property
    def n_features(self) -> int:
        """Number of features so far."""
        return self._basis.features

    def add(self, block: Block) -> None:
        """Learn a batch of rows.

        Rows without a target are skipped and counted.

        Raises InvalidWeights, WidthMismatch or InvalidRows.
        """
        self._basis.check(block, "IncrementalSKM")
        known, skipped = drop_rows_without_target(block)
        if known.rows:
            self.target_kind = "class"
            codes = self._add_labels_and_encode(known.y)
            self._basis.start(known, subtract_first_row=True)
            self._basis.grow(known.features, len(self.labels))
            self._basis.learn(known.X, self.rows, self._amnesic, self._a, None, codes)
            self.rows += known.rows
        self.rows_skipped += skipped

    def freeze(self) -> SKMState:
        """Return a copy of the state so far.

        Costs O(d (p + c)) for d features, p vectors and c classes.
        """
        basis = self._basis.freeze()
        return SKMState(self.rows, self.rows_skipped, self.n_features, self.target_kind, self.labels, basis)

    def _add_labels_and_encode(self, targets: Targets) -> np.ndarray:
        """Add new labels to self.labels, and return the rows' classes.

        The result (rows,) has the index of each row's class in self.labels. New labels are added
        in the order in which they appear in the rows.
        """
        place = self._place
        if not all(label in place for label in targets.labels):
            used, first = np.unique(targets.codes, return_index=True)
            for code in used[np.argsort(first)]:
                place.setdefault(targets.labels[code], len(place))
            self.labels = tuple(place)
        table = np.array([place.get(label, -1) for label in targets.labels], dtype=np.int64)
        return table.take(targets.codes)
