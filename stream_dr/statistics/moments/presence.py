"""PresenceAccumulator: sums of which features are not 0, by label.

It learns each row with all of its nonzero values replaced by 1. So the sums of a MomentState become
weights of rows. With the state `s`,

- `s.features.features[:, WEIGHT]` are the weights of the rows in which each feature is present,
- `s.features.cross` (features, labels) are the weights of these rows by label.

Dense rows are learned as sparse rows, too. If the weights of rows are whole numbers (1 by default),
the sums are exact to the last bit.
"""

from typing import NamedTuple

import numpy as np

from stream_dr.errors import CannotUnlearn
from stream_dr.rows.block import Block, Rows
from stream_dr.statistics.moments.accumulator import MomentAccumulator
from stream_dr.statistics.moments.batch_plan import PlannedBatch
from stream_dr.statistics.moments.sparse_sums import SparsePart
from stream_dr.statistics.moments.state import MomentState
from stream_dr.statistics.moments.unlearn import TOLERANCE
from stream_dr.targets.targets import raise_unsupported_target_kind


class PresenceAccumulator(MomentAccumulator):
    """Accumulator of the weights of rows with each feature and label.

    state: sums to continue from, or None. Its arrays are copied.
    """

    def __init__(self, state: MomentState | None = None) -> None:
        super().__init__("indicator", "none", state=state)

    def check_and_plan_batch(self, block: Block) -> PlannedBatch:
        """Check a batch, and return the plan for learning its presences.

        Raises TargetKindMismatch for continuous targets, and the errors of `add`.
        """
        if block.y is not None and block.y.kind == "continuous":
            raise_unsupported_target_kind(block.y.kind, ("class", "multilabel"))
        batch = super().check_and_plan_batch(block)
        return batch._replace(X=_presences(batch.X))

    def remove(self, block: Block) -> None:
        """Remove a batch that was learned before.

        Also raises CannotUnlearn if the weight of a feature and label would become negative.
        """
        before = self.freeze()
        super().remove(block)
        part = self.freeze().features
        if isinstance(part, SparsePart) and (part.cross < -TOLERANCE * before.weight).any():
            self._load_state(before)
            raise CannotUnlearn("rows that were not learned, or with other labels or weights, cannot be taken out.")


class Presences(NamedTuple):
    """Arrays of CSR rows with 1 for each present feature.

    This is not a csr_matrix, because creating one takes as long as learning a row.

    Attributes
    ----------
    indptr : (rows + 1,)
        Start of each row in `indices` and `data`.
    indices : (entries,)
        Feature of each entry.
    data : (entries,)
        1, or 0 for a stored zero.
    """

    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray


def _presences(X: Rows) -> Presences:
    """Return the features that are present in each row.

    X: rows, dense or CSR.
    """
    if not isinstance(X, np.ndarray):
        return Presences(X.indptr, X.indices, X.data.astype(bool).astype(X.data.dtype))
    row_numbers, columns = np.nonzero(X)
    indptr = np.searchsorted(row_numbers, np.arange(len(X) + 1)).astype(np.int32)
    return Presences(indptr, columns.astype(np.int32), np.ones(len(columns), X.dtype))
