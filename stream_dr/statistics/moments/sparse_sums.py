"""SparseSums: sums about a point, for sparse rows without exact scatter.

A row touches only the sums of its own features.

Each feature has n (weight of its nonzeros), c (the first of them), Σ w (v − c) and Σ w (v − c)²
over its nonzeros, and the cross sums Σ w x (y − r)ᵀ (d, k). r is a reference near ȳ for continuous
targets, zero for labels. With μ and q the mean and spread of the nonzeros and N the weight of all
rows, x̄ = n μ / N and diag(Cxx) = q + n (N − n) / N · μ² [mathematics §1]. This never subtracts
two large numbers.

Centring would cost O(d k) a batch. Cxy = Σ w x (y − r)ᵀ − N x̄ (ȳ − r)ᵀ loses |mean|/std of its
precision, which is below 1 for a feature absent from half of the rows. Under decay c moves to μ
whenever the clock renormalises. Otherwise a first value far off would outlive its own weight.

A batch costs O(nonzeros · (labels of the row + 1)), whatever d and k. Memory is 8 d (k + 4) bytes.
Arrays have room to grow, and double when it runs out.
"""

from typing import NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from stream_dr.checks import check_array_shapes, check_finite_arrays, field_error
from stream_dr.statistics.aligned import aligned_zeros
from stream_dr.statistics.moments.centred_part import CentredPart, dd_add, padded
from stream_dr.statistics.moments.encoding import Encoded
from stream_dr.statistics.moments.sparse_kernels import LINE, add_features, add_label_sets, add_one_label, add_values
from stream_dr.statistics.moments.target_sums import TargetSums
from stream_dr.statistics.protocol import nested_state

WEIGHT, POINT, SUM, SQUARES = range(4)
"""Columns of `features`."""

HEAD = 4
"""Column of a feature's record where its cross sums begin."""

FAR = 8.0
"""Number of standard deviations by which ȳ may leave the reference of continuous targets."""

NOTHING = 1e-14
"""Share of a feature's weight below which it counts as none."""


@nested_state
class SparsePart(NamedTuple):
    """Frozen sums of sparse rows. All float64, stored units.

    Attributes
    ----------
    features : (d, 4)
        n, c, Σ w (v − c), Σ w (v − c)² of each feature's nonzeros.
    cross : (d, k)
        Cross sums about `reference`.
    reference : (k,)
        r.
    """

    features: np.ndarray
    cross: np.ndarray
    reference: np.ndarray

    def check(self, width: int, columns: int) -> None:
        """Raise DamagedFile unless it has these numbers of features and target columns."""
        check_array_shapes(self, np.float64, features=(width, HEAD), cross=(width, columns), reference=(columns,))
        check_finite_arrays(self, "features", "cross", "reference")
        if (self.features[:, WEIGHT] < 0.0).any():
            raise field_error(self, "features", "of negative weight", "of weight 0 or more")

    @property
    def sums(self) -> np.ndarray:
        """Sums Σ w x (d,)."""
        return self.features[:, WEIGHT] * self.features[:, POINT] + self.features[:, SUM]

    def centred(self, weight: float, target_offset: np.ndarray) -> CentredPart:
        """Return the same rows' centred sums.

        weight: N. target_offset: ȳ − r (k,).
        """
        n, point, (offset, _) = self.features[:, WEIGHT], self.features[:, POINT], nonzero_spreads(self.features)
        share = n / weight if weight > 0.0 else np.zeros_like(n)
        mean, low = dd_add(share * point, np.zeros_like(n), share * offset)
        cross = np.outer(self.sums, target_offset)
        np.subtract(self.cross, cross, out=cross)
        nonzero = np.where(n > 0.0, np.nan, 0.0)
        return CentredPart(False, weight, mean, low, self.variances(weight), np.zeros((0, 0)), cross, nonzero)

    def variances(self, weight: float) -> np.ndarray:
        """Return the diagonal (d,) of the centred scatter, N being weight.

        It is q + n (N − n) / N · μ². Costs O(d).
        """
        n, (offset, spread) = self.features[:, WEIGHT], nonzero_spreads(self.features)
        share = n / weight if weight > 0.0 else np.zeros_like(n)
        return spread + n * np.maximum(1.0 - share, 0.0) * (self.features[:, POINT] + offset) ** 2

    def scaled(self, factor: float) -> "SparsePart":
        """Return the part with every sum multiplied by factor."""
        features = self.features * np.array([factor, 1.0, factor, factor])
        return SparsePart(features, self.cross * factor, self.reference)

    def aligned(self, width: int, columns: np.ndarray, total: int) -> "SparsePart":
        """Return the part with `width` features and `total` target columns.

        Column j becomes columns[j].
        """
        cross, reference = np.zeros((width, total)), np.zeros(total)
        cross[: len(self.cross), columns] = self.cross
        reference[columns] = self.reference
        return SparsePart(padded(self.features, (width, HEAD)), cross, reference)

    def referred(self, reference: np.ndarray) -> "SparsePart":
        """Return the same sums about another reference (k,)."""
        if np.array_equal(self.reference, reference):
            return self
        cross = self.cross + np.outer(self.sums, self.reference - reference)
        return SparsePart(self.features, cross, reference.copy())

    def join(self, other: "SparsePart", sign: float = 1.0) -> "SparsePart":
        """Return the sums of both, or of self without other.

        They are about the reference of self. The sign is 1 or −1. Both have the same width and
        columns.
        """
        other = other.referred(self.reference)
        features = join_features(self.features, other.features, sign)
        cross = self.cross + sign * other.cross
        cross[features[:, WEIGHT] == 0.0] = 0.0
        return SparsePart(features, cross, self.reference)


class SparseSums:
    """The mutable side of SparsePart."""

    def __init__(self, width: int, reference: np.ndarray) -> None:
        """Create the sums of no rows.

        Memory that no row needs is not touched.
        """
        self.width, self.columns = width, len(reference)
        self.reference = reference.copy()
        self._records = aligned_zeros(width, _record_length(self.columns))

    @classmethod
    def continuing(cls, part: SparsePart) -> Self:
        """Return sums that continue from `part`, whose arrays are copied."""
        sums = cls(len(part.cross), part.reference)
        sums._records[:, :HEAD] = part.features
        sums._records[:, HEAD : HEAD + sums.columns] = part.cross
        return sums

    def freeze(self) -> SparsePart:
        """Return the sums so far, copied."""
        records, end = self._records[: self.width], HEAD + self.columns
        return SparsePart(records[:, :HEAD].copy(), records[:, HEAD:end].copy(), self.reference.copy())

    def rescale(self, factor: float) -> None:
        """Multiply every sum by factor."""
        self._records[:, [WEIGHT, SUM, SQUARES]] *= factor
        self._records[:, HEAD:] *= factor
        self._recentre()

    def grow(self, width: int, columns: int) -> None:
        """Make room for more features and target columns, doubled when it runs out."""
        rows, record = self._records.shape
        if width > rows or HEAD + columns > record:
            rows = rows if width <= rows else max(width, 2 * rows)
            record = (
                record
                if HEAD + columns <= record
                else max(_record_length(columns), _record_length(2 * (record - HEAD)))
            )
            old, self._records = self._records, aligned_zeros(rows, record)
            self._records[: old.shape[0], : old.shape[1]] = old
        self.reference = padded(self.reference, (columns,))
        self.width, self.columns = width, columns

    def add(self, X: sp.csr_matrix, weights: np.ndarray, encoded: Encoded | None, total: float) -> float:
        """Add rows (rows, ≤ width) of stored weights (rows,) and their targets.

        total: weight of all rows before. Returns it with theirs.
        """
        rows, sums = (X.indptr, X.indices, X.data, weights), (self._records, total)
        if encoded is None:
            return float(add_features(*rows, *sums))
        if encoded.values is not None:
            return float(add_values(*rows, encoded.values - self.reference, *sums))
        if encoded.indptr is None:
            return float(add_one_label(*rows, encoded.codes, *sums))
        scale = weights if encoded.row_values is None else weights * encoded.row_values
        return float(add_label_sets(*rows, encoded.indptr, encoded.codes, scale, *sums))

    def set_reference(self, values: np.ndarray, weights: np.ndarray) -> None:
        """Take the mean of continuous targets (rows, k) as the reference.

        Called before any row of weight. weights: (rows,).
        """
        total = float(weights.sum())
        if total > 0.0:
            self.reference = weights / total @ values

    def follow_mean(self, targets: TargetSums) -> None:
        """Move the reference of continuous targets to ȳ.

        This is done when ȳ is eight standard deviations away. Costs O(d k).
        """
        values = targets.values
        if targets.labelled or values.weight == 0.0:
            return
        offset = values.mean - self.reference
        if np.any(offset**2 * values.weight > FAR**2 * values.variances) and np.any(offset != 0.0):
            end = HEAD + self.columns
            sums = self._records[:, WEIGHT] * self._records[:, POINT] + self._records[:, SUM]
            self._records[:, HEAD:end] -= np.outer(sums, offset)
            self.reference = values.mean.copy()

    def _recentre(self) -> None:
        """Take the mean of its nonzeros as each feature's point. Costs O(d)."""
        head = self._records[:, :HEAD]
        offset, spread = nonzero_spreads(head)
        head[:] = _recentre_features(head[:, WEIGHT], head[:, POINT], offset, spread)


def _recentre_features(n: np.ndarray, point: np.ndarray, offset: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Return features (d, 4) with their point moved to the mean.

    n: weight. The mean is point + offset.
    """
    mean = point + offset
    rest = offset - (mean - point)
    return np.stack((n, mean, n * rest, spread + n * rest**2), axis=1)


def nonzero_spreads(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return offset and spread of each feature's nonzeros.

    These are the mean less the point, and Σ w (v − mean)².

    features: (d, 4).
    """
    n, total = features[:, WEIGHT], features[:, SUM]
    offset = np.divide(total, n, out=np.zeros_like(n), where=n > 0.0)
    return offset, np.maximum(features[:, SQUARES] - total * offset, 0.0)


def _record_length(columns: int) -> int:
    """Return how many numbers a feature's record takes.

    Whole cache lines, or half of one without targets.
    """
    return HEAD if columns == 0 else -(-(HEAD + columns) // LINE) * LINE


def join_features(a: np.ndarray, b: np.ndarray, sign: float) -> np.ndarray:
    """Return features (d, 4) of both, or of a without b.

    The formula is Chan's. Squares below zero stay as they are: b was no part of a, or they are
    rounding, which `nonzero_spreads` takes as 0.
    """
    (offset, spread), (other, other_spread) = nonzero_spreads(a), nonzero_spreads(b)
    n = a[:, WEIGHT] + sign * b[:, WEIGHT]
    n[n <= NOTHING * a[:, WEIGHT]] = 0.0
    share = np.divide(b[:, WEIGHT], n, out=np.zeros_like(n), where=n > 0.0)
    step = (b[:, POINT] - a[:, POINT]) + (other - offset)
    offset = offset + sign * share * step
    spread = spread + sign * (other_spread + a[:, WEIGHT] * share * step**2)
    out = _recentre_features(n, a[:, POINT], offset, spread)
    out[n == 0.0] = 0.0
    out[b[:, WEIGHT] == 0.0] = a[b[:, WEIGHT] == 0.0]
    if sign > 0.0:
        out[a[:, WEIGHT] == 0.0] = b[a[:, WEIGHT] == 0.0]
    return out
