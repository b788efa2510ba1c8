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

from stream_dr.accumulate.centred_sums import CentredPart, padded
from stream_dr.accumulate.encoding import Encoded
from stream_dr.accumulate.protocol import nested_state
from stream_dr.accumulate.sparse_kernels import add_features, add_label_sets, add_one_label, add_values

WEIGHT, MEAN, SPREAD, COUNT = range(4)
"""Columns of `features`."""


@nested_state
class SparsePart(NamedTuple):
    """What SparseSums remembers, frozen. All float64.

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
        if weight == 0.0:
            d, k = self.cross.shape
            return CentredPart(0.0, np.zeros(d), np.zeros(d), np.zeros(d), np.zeros((0, 0)), np.zeros((d, k)))
        mean = n / weight * mu
        diagonal = q + n * (np.maximum(weight - n, 0.0) / weight) * mu**2
        cross = self.cross - np.outer(n * mu, target_offset)
        return CentredPart(weight, mean, np.zeros_like(mean), diagonal, np.zeros((0, 0)), cross)


def empty_sparse(width: int, reference: np.ndarray) -> SparsePart:
    """Sums of no rows."""
    return SparsePart(np.zeros((width, 4)), np.zeros((width, len(reference))), reference)


class SparseSums:
    """The mutable side of SparsePart."""

    def __init__(self, part: SparsePart) -> None:
        """Goes on from `part`, whose arrays it copies."""
        self._features, self._cross = part.features.copy(), part.cross.copy()
        self.reference = part.reference.copy()
        self.width, self.columns = part.cross.shape

    def freeze(self) -> SparsePart:
        """The sums so far, copied."""
        d, k = self.width, self.columns
        return SparsePart(self._features[:d].copy(), self._cross[:d, :k].copy(), self.reference.copy())

    def scaled(self, factor: float) -> None:
        """Multiply every sum by factor."""
        self._features[:, WEIGHT] *= factor
        self._features[:, SPREAD] *= factor
        self._cross *= factor

    def grow(self, width: int, columns: int) -> None:
        """Room for more features and more target columns."""
        rows, room = self._cross.shape
        if width > rows or columns > room:
            rows = rows if width <= rows else max(width, 2 * rows if rows else width)
            room = room if columns <= room else max(columns, 2 * room if room else columns)
            self._cross = padded(self._cross, (rows, room))
            self._features = padded(self._features, (rows, 4))
        self.reference = padded(self.reference, (columns,)) if columns > self.columns else self.reference
        self.width, self.columns = max(width, self.width), max(columns, self.columns)

    def add(self, X: sp.csr_matrix, weights: np.ndarray, encoded: Encoded | None) -> None:
        """Add rows (rows, ≤ width) with stored weights (rows,) and their targets."""
        ptr, at, values = X.indptr, X.indices, X.data
        f, c = self._features, self._cross
        if encoded is None:
            add_features(ptr, at, values, weights, f)
        elif encoded.values is not None:
            add_values(ptr, at, values, weights, encoded.values - self.reference, f, c)
        elif encoded.indptr is None:
            add_one_label(ptr, at, values, weights, encoded.codes, f, c)
        else:
            scale = np.ones(len(weights)) if encoded.row_values is None else encoded.row_values
            add_label_sets(ptr, at, values, weights, encoded.indptr, encoded.codes, scale, f, c)

    def refer(self, reference: np.ndarray) -> None:
        """Take another reference c (k,). O(d k)."""
        d, k = self.width, self.columns
        sums = self._features[:d, WEIGHT] * self._features[:d, MEAN]
        self._cross[:d, :k] += np.outer(sums, self.reference - reference)
        self.reference = reference.copy()


def referred(part: SparsePart, reference: np.ndarray) -> SparsePart:
    """The same sums about another reference c (k,)."""
    if np.array_equal(part.reference, reference):
        return part
    return part._replace(cross=part.cross + np.outer(part.sums, part.reference - reference), reference=reference.copy())


def joined_sparse(a: SparsePart, b: SparsePart, sign: float = 1.0) -> SparsePart:
    """Sums of both; with sign −1 those of a without b. Same width and columns; about a's reference."""
    b = referred(b, a.reference)
    features = joined_features(a.features, b.features, sign)
    cross = a.cross + sign * b.cross
    if sign < 0:
        cross[features[:, COUNT] == 0.0] = 0.0
    return SparsePart(features, cross, a.reference)


def joined_features(a: np.ndarray, b: np.ndarray, sign: float) -> np.ndarray:
    """Features (d, 4) of both, or of a without b: Chan's formula feature by feature."""
    out = a.copy()
    n = a[:, WEIGHT] + sign * b[:, WEIGHT]
    out[:, COUNT] += sign * b[:, COUNT]
    some = (b[:, WEIGHT] != 0.0) & (n > 0.0)
    share = np.divide(b[:, WEIGHT], n, out=np.zeros_like(n), where=some)
    step = b[:, MEAN] - a[:, MEAN]
    out[:, WEIGHT] = n
    out[:, MEAN] += sign * share * step
    out[:, SPREAD] += sign * (b[:, SPREAD] + a[:, WEIGHT] * share * step**2)
    np.maximum(out[:, SPREAD], 0.0, out=out[:, SPREAD])
    out[(out[:, COUNT] <= 0.0) | (n <= 0.0)] = 0.0
    return out
