"""TargetSums: what is remembered of the targets themselves.

Labels: n_j and the number of rows with label j, sums of their own (N·ȳ_j would leave −2e-16 for an emptied class, and a
junk column), Σ w y and, for several labels a row, Σ w y yᵀ about zero: entries lie in [0, 1], so nothing is lost.
Continuous targets: centred sums like those of the features, since their offset may be anything.

Cost: O(labels²) a row, or O(k²) where targets are continuous; memory 8 k² bytes (one label a row: 8 k).
"""

from typing import NamedTuple

import numpy as np

from stream_dr.accumulate.centred_sums import CentredPart, CentredSums, Centring, empty_part, joined, padded
from stream_dr.accumulate.encoding import Encoded
from stream_dr.accumulate.protocol import nested_state
from stream_dr.accumulate.target_kernels import add_gram


@nested_state
class TargetPart(NamedTuple):
    """What TargetSums remembers, frozen.

    label_weights: (k,) float64 n_j. label_rows: (k,) int64. total: (k,) Σ w y. gram: (k, k) Σ w y yᵀ, or (0, 0) where a
    row has one label. values: centred sums of continuous targets (0 wide for labels).
    """

    label_weights: np.ndarray
    label_rows: np.ndarray
    total: np.ndarray
    gram: np.ndarray
    values: CentredPart

    @property
    def labelled(self) -> bool:
        """Whether targets are labels."""
        return len(self.values.mean) == 0

    def mean(self, weight: float) -> np.ndarray:
        """(k,) ȳ, N being weight."""
        if not self.labelled:
            return self.values.mean
        return self.total / weight if weight > 0.0 else np.zeros_like(self.total)

    def scatter(self, weight: float) -> np.ndarray:
        """(k, k) Cyy."""
        if not self.labelled:
            return self.values.scatter
        gram = self.gram if len(self.gram) else np.diag(self.total)
        return gram - np.outer(self.total, self.mean(weight))

    def step_from(self, other: "TargetPart", weight: float, other_weight: float) -> np.ndarray:
        """(k,) ȳ − ȳ of other."""
        if self.labelled:
            return self.mean(weight) - other.mean(other_weight)
        return (self.values.mean - other.values.mean) + (self.values.low - other.values.low)


def empty_targets(kind: str | None, columns: int) -> TargetPart:
    """Sums of no rows, for `columns` columns of targets of this kind (None: no targets)."""
    continuous = kind == "continuous"
    k = 0 if continuous else columns
    gram = k if kind == "multilabel" else 0
    values = empty_part(columns if continuous else 0, 0, exact=True)
    return TargetPart(np.zeros(k), np.zeros(k, dtype=np.int64), np.zeros(k), np.zeros((gram, gram)), values)


class TargetSums:
    """The mutable side of TargetPart."""

    def __init__(self, part: TargetPart) -> None:
        """Goes on from `part`, whose arrays it copies."""
        self.label_weights, self.label_rows = part.label_weights.copy(), part.label_rows.copy()
        self.total, self.gram = part.total.copy(), part.gram.copy()
        self.several = len(self.gram) > 0
        self.labelled = part.labelled
        self.values = CentredSums(part.values)

    def freeze(self) -> TargetPart:
        """The sums so far, copied."""
        arrays = (self.label_weights, self.label_rows, self.total, self.gram)
        return TargetPart(*(a.copy() for a in arrays), self.values.freeze())

    def scaled(self, factor: float) -> None:
        """Multiply every weighted sum by factor."""
        for sums in (self.label_weights, self.total, self.gram):
            sums *= factor
        self.values.scaled(factor)

    def grow(self, columns: int, several: bool) -> None:
        """Room for more labels."""
        if columns != len(self.total):
            self.label_weights, self.total = padded(self.label_weights, (columns,)), padded(self.total, (columns,))
            self.label_rows = padded(self.label_rows, (columns,))
        if several and columns != len(self.gram):
            self.gram = padded(self.gram, (columns, columns))
            self.several = True

    def add(self, encoded: Encoded, weights: np.ndarray) -> None:
        """Add the targets of rows of stored weights (rows,)."""
        if encoded.values is not None:
            self.add_values(encoded.values, weights)
        elif encoded.indptr is None:
            k = len(self.total)
            n = np.bincount(encoded.codes, weights, minlength=k)
            self.label_weights += n
            self.total += n
            self.label_rows += np.bincount(encoded.codes, minlength=k)
        else:
            self._add_sets(encoded, weights)

    def add_values(self, values: np.ndarray, weights: np.ndarray) -> Centring | None:
        """Add continuous targets (rows, k); what they were centred to is returned, for the cross sums."""
        centring = self.values.centre(values, weights)
        if centring is not None:
            self.values.join(centring, None)
        return centring

    def _add_sets(self, encoded: Encoded, weights: np.ndarray) -> None:
        k = len(self.total)
        assert encoded.indptr is not None
        number = np.diff(encoded.indptr)
        w = np.repeat(weights, number)
        r = 1.0 if encoded.row_values is None else np.repeat(encoded.row_values, number)
        self.label_weights += np.bincount(encoded.codes, w, minlength=k)
        self.label_rows += np.bincount(encoded.codes, minlength=k)
        self.total += np.bincount(encoded.codes, w * r, minlength=k)
        scale = weights if encoded.row_values is None else weights * encoded.row_values**2
        add_gram(encoded.indptr, encoded.codes, scale, self.gram)


def joined_targets(a: TargetPart, b: TargetPart, sign: float = 1.0) -> TargetPart:
    """Sums of both; with sign −1 those of a without b. Same columns. An emptied label's sums are exactly zero."""
    rows = a.label_rows + (b.label_rows if sign > 0 else -b.label_rows)
    weights, total, gram = (x + sign * y for x, y in zip(a[0:1] + a[2:4], b[0:1] + b[2:4], strict=True))
    if sign < 0:
        gone = rows <= 0
        weights[gone], total[gone] = 0.0, 0.0
        if len(gram):
            gram[gone], gram[:, gone] = 0.0, 0.0
    return TargetPart(weights, rows, total, gram, joined(a.values, b.values, None, sign))
