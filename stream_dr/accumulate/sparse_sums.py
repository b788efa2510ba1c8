"""SparseSums: what is remembered of sparse rows when their scatter is not: sums about zero, touched only where rows are.

Remembered a feature: n (weight of its nonzeros), their mean μ, q = Σ w (v − μ)² over the nonzeros, and their count; and
the cross sums Σ w x (y − c)ᵀ (d, k), c a reference near ȳ for continuous targets, zero for labels. With N the weight of
all rows, x̄ = n μ / N and diag(Cxx) = q + n (N − n)/N · μ² [MATH §1], which never subtracts two large numbers.

Cost: O(nonzeros · (labels of the row + 1)) a batch, whatever d and k; memory 8 d (k + 4) bytes. Arrays are kept with room
to grow, doubled when it runs out.

Why this way: centring would cost O(d k) a batch. Cxy = Σ w x (y − c)ᵀ − N x̄ (ȳ − c)ᵀ loses |mean|/std of its precision,
which is below 1 for a feature absent from half of the rows.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from stream_dr.accumulate.centred_part import CentredPart, padded
from stream_dr.accumulate.encoding import Encoded
from stream_dr.accumulate.protocol import nested_state
from stream_dr.accumulate.sparse_kernels import add_features, add_label_sets, add_one_label, add_values
from stream_dr.accumulate.target_sums import TargetSums

WEIGHT, MEAN, SPREAD, COUNT = range(4)
"""Columns of `features`."""

HEAD = 4
"""Where a feature's cross sums begin in its record, behind the four."""

FAR = 8.0
"""Standard deviations by which ȳ may leave the reference of continuous targets."""


@nested_state
class SparsePart(NamedTuple):
    """What SparseSums remembers, frozen. All float64, stored units.

    features: (d, 4): weight, mean and spread of each feature's nonzeros, and their count. cross: (d, k) about reference.
    reference: (k,) c.
    """

    features: np.ndarray
    cross: np.ndarray
    reference: np.ndarray

    @property
    def sums(self) -> np.ndarray:
        """(d,) Σ w x."""
        return self.features[:, WEIGHT] * self.features[:, MEAN]

    def centred(self, weight: float, target_offset: np.ndarray) -> CentredPart:
        """The same rows' centred sums; weight: N, target_offset: ȳ − c (k,)."""
        n, mu, q = self.features[:, WEIGHT], self.features[:, MEAN], self.features[:, SPREAD]
        share = n / weight if weight > 0.0 else np.zeros_like(n)
        mean, low = share * mu, np.zeros_like(mu)
        diagonal = q + n * np.maximum(1.0 - share, 0.0) * mu**2
        cross = self.cross - np.outer(self.sums, target_offset)
        return CentredPart(False, weight, mean, low, diagonal, np.zeros((0, 0)), cross)

    def scaled(self, factor: float) -> "SparsePart":
        """With every sum multiplied by factor."""
        features = self.features * np.array([factor, 1.0, factor, 1.0])
        return SparsePart(features, self.cross * factor, self.reference)

    def aligned(self, width: int, columns: np.ndarray, total: int) -> "SparsePart":
        """With `width` features and `total` target columns, column j at columns[j]."""
        cross, reference = np.zeros((width, total)), np.zeros(total)
        cross[: len(self.cross), columns] = self.cross
        reference[columns] = self.reference
        return SparsePart(padded(self.features, (width, HEAD)), cross, reference)

    def referred(self, reference: np.ndarray) -> "SparsePart":
        """The same sums about another reference c (k,)."""
        if np.array_equal(self.reference, reference):
            return self
        cross = self.cross + np.outer(self.sums, self.reference - reference)
        return SparsePart(self.features, cross, reference.copy())

    def join(self, other: "SparsePart", sign: float = 1.0) -> "SparsePart":
        """Sums of both; with sign −1 those without other. Same width and columns; about our reference."""
        other = other.referred(self.reference)
        features = joined_features(self.features, other.features, sign)
        cross = self.cross + sign * other.cross
        cross[features[:, COUNT] == 0.0] = 0.0
        return SparsePart(features, cross, self.reference)


def empty_sparse(width: int, reference: np.ndarray) -> SparsePart:
    """Sums of no rows."""
    return SparsePart(np.zeros((width, HEAD)), np.zeros((width, len(reference))), reference)


class SparseSums:
    """The mutable side of SparsePart."""

    def __init__(self, part: SparsePart) -> None:
        """Goes on from `part`, whose arrays it copies."""
        self.width, self.columns = part.cross.shape
        self.reference = part.reference.copy()
        self._records = np.zeros((self.width, _record(self.columns)))
        self._records[:, :HEAD] = part.features
        self._records[:, HEAD : HEAD + self.columns] = part.cross

    def freeze(self) -> SparsePart:
        """The sums so far, copied."""
        records, end = self._records[: self.width], HEAD + self.columns
        return SparsePart(records[:, :HEAD].copy(), records[:, HEAD:end].copy(), self.reference.copy())

    def scaled(self, factor: float) -> None:
        """Multiply every sum by factor."""
        self._records[:, [WEIGHT, SPREAD]] *= factor
        self._records[:, HEAD:] *= factor

    def grow(self, width: int, columns: int) -> None:
        """Room for more features and more target columns, doubled when it runs out."""
        rows, record = self._records.shape
        if width > rows or HEAD + columns > record:
            rows = rows if width <= rows else max(width, 2 * rows)
            record = record if HEAD + columns <= record else max(_record(columns), 2 * record - HEAD)
            self._records = padded(self._records, (rows, record))
        self.reference = padded(self.reference, (columns,))
        self.width, self.columns = width, columns

    def add(self, X: sp.csr_matrix, weights: np.ndarray, encoded: Encoded | None) -> None:
        """Add rows (rows, ≤ width) of stored weights (rows,) and their targets."""
        rows = (X.indptr, X.indices, X.data, weights)
        if encoded is None:
            add_features(*rows, self._records)
        elif encoded.values is not None:
            add_values(*rows, encoded.values - self.reference, self._records)
        elif encoded.indptr is None:
            add_one_label(*rows, encoded.codes, self._records)
        else:
            scale = weights if encoded.row_values is None else weights * encoded.row_values
            add_label_sets(*rows, encoded.indptr, encoded.codes, scale, self._records)

    def follow(self, targets: TargetSums) -> None:
        """Take ȳ as the reference of continuous targets where it has left it by eight standard deviations. O(d k)."""
        values = targets.values
        if targets.labelled or values.weight == 0.0:
            return
        offset = values.mean - self.reference
        if np.any(offset**2 * values.weight > FAR**2 * values.variances) and np.any(offset != 0.0):
            end = HEAD + self.columns
            sums = self._records[:, WEIGHT] * self._records[:, MEAN]
            self._records[:, HEAD:end] -= np.outer(sums, offset)
            self.reference = values.mean.copy()


def _record(columns: int) -> int:
    """Numbers a feature's record takes: whole cache lines once it is long."""
    return HEAD + columns if columns < 4 else -(-(HEAD + columns) // 8) * 8


def joined_features(a: np.ndarray, b: np.ndarray, sign: float) -> np.ndarray:
    """Features (d, 4) of both, or of a without b: Chan's formula, feature by feature."""
    out = a.copy()
    n = a[:, WEIGHT] + sign * b[:, WEIGHT]
    some = (b[:, WEIGHT] != 0.0) & (n > 0.0)
    share = np.divide(b[:, WEIGHT], n, out=np.zeros_like(n), where=some)
    step = b[:, MEAN] - a[:, MEAN]
    out[:, WEIGHT] = n
    out[:, MEAN] += sign * share * step
    out[:, SPREAD] += sign * (b[:, SPREAD] + a[:, WEIGHT] * share * step**2)
    out[:, COUNT] += sign * b[:, COUNT]
    np.maximum(out[:, SPREAD], 0.0, out=out[:, SPREAD])
    out[(out[:, COUNT] <= 0.0) | (n <= 0.0)] = 0.0
    return out
