"""The plan for learning a batch.

Rows, targets and weights were checked where they came in. The plan only checks that they fit into
the arrays of sums, before anything is written. So the accumulator does not change if a check
fails. A plan costs O(labels).
"""

from typing import NamedTuple

import numpy as np

from stream_dr.batch.block import Rows
from stream_dr.batch.targets import Label, Targets
from stream_dr.statistics.moments.encoding import EncodedTargets, take_encoded_rows


class PlannedBatch(NamedTuple):
    """Checked batch, and properties that its accumulator gets with it.

    Attributes
    ----------
    X : (rows, ≤ width)
        The rows to learn, dense or CSR.
    weights : (rows,) float64
        Weights of the rows.
    encoded : EncodedTargets or None
        Targets of the rows as numeric columns. None if the learner does not read targets.
    skipped : int
        Number of rows that are not learned because they have no target.
    width : int
        Number of features of the accumulator after the batch.
    n_target_columns : int
        Number of target columns.
    scatter, dense, target_kind, target_width, labels
        As in MomentState.
    hashes : (rows,) uint64 or None
        Hash of each row or of its group, if the block has them. It decides the row's fold.
    """

    X: Rows
    weights: np.ndarray
    encoded: EncodedTargets | None
    skipped: int
    scatter: str
    width: int
    n_target_columns: int
    dense: bool
    target_kind: str | None
    target_width: int
    labels: tuple[Label, ...]
    hashes: np.ndarray | None = None

    def take(self, row_indices: np.ndarray) -> "PlannedBatch":
        """Return the plan of some of the rows.

        row_indices: int64 indices of the rows.
        """
        return self._replace(
            X=self.X[row_indices],
            weights=self.weights[row_indices],
            encoded=None if self.encoded is None else take_encoded_rows(self.encoded, row_indices),
            hashes=None if self.hashes is None else self.hashes[row_indices],
        )

    @property
    def rows(self) -> int:
        """Number of rows to learn."""
        return self.weights.size

    @property
    def sparse(self) -> bool:
        """True if the rows are CSR."""
        return not isinstance(self.X, np.ndarray)


def with_new_labels_appended(
    label_codes: dict[Label, int], earlier_labels: tuple[Label, ...], targets: Targets
) -> tuple[tuple[Label, ...], np.ndarray]:
    """Append a batch's new labels to the earlier labels.

    Also returns the index (labels of the batch,) int32 of each label of the batch.

    label_codes: index of each earlier label.
    earlier_labels: labels before the batch.
    targets: targets of the batch.
    """
    try:
        return earlier_labels, np.array([*map(label_codes.__getitem__, targets.labels)], dtype=np.int32)
    except KeyError:
        new = tuple(label for label in targets.labels if label not in label_codes)
    codes = label_codes | {label: code for code, label in enumerate(new, len(earlier_labels))}
    return earlier_labels + new, np.array([codes[label] for label in targets.labels], dtype=np.int32)
