"""CentredSums: centred sums to which rows are added [mathematics §1].

It takes dense rows, and sparse rows if the scatter is exact. A chunk of rows is centred on the
chunk's own mean. Its sums are then joined to the sums so far by the formula of Chan, Golub and
LeVeque. The last term of that formula is computed as one more row of the matrix product, the
joining row.

Sparse rows with few nonzeros are not centred but shifted (shifted_rows.py). Products of few rows
are added in place (dense_kernels.py), so a small batch allocates nothing of size d² or d k.

A dense row of d features and k target columns costs d k multiplications, plus d² / 2 with exact
scatter or d without. A sparse row costs nonzeros² / 2, and a batch d² in addition. Temporary
memory is one chunk of 8 MB. Only the lower triangle of the scatter is updated. `freeze` returns
the symmetric matrix.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from stream_dr.rows.block import Rows
from stream_dr.statistics.moments.centred_part import CentredPart, dd_add, pad_to_shape
from stream_dr.statistics.moments.dense_kernels import add_cross_product, add_outer, add_product, centre_rows, mirrored
from stream_dr.statistics.moments.encoding import Encoded, dense_columns
from stream_dr.statistics.moments.shifted_rows import add_products, shifted_rows

CHUNK_VALUES = 1 << 20
"""Number of values of a dense batch that are centred at a time (8 MB)."""

DENSE_SHARE = 0.15
"""Share of nonzeros from which sparse rows are multiplied as dense rows.

From this share on the dense product is faster.
"""


def chunk_rows(width: int) -> int:
    """Return the number of rows to centre at a time.

    width: number of features.
    """
    return max(16, CHUNK_VALUES // max(1, width))


class Joining(NamedTuple):
    """Terms that join a chunk of rows to the sums so far.

    Attributes
    ----------
    step : (features,)
        Mean of the chunk minus the mean so far.
    share : float
        Share of `step` by which the mean so far moves.
    root : float
        √(N n / (N + n)), N being the weight so far and n the chunk's weight. The outer product of
        root · step with itself is added to the scatter. root · step is called the joining row.
    """

    step: np.ndarray
    share: float
    root: float


class CentredSums:
    """Centred sums to which rows are added.

    `freeze` returns them as a CentredPart.
    """

    def __init__(self, part: CentredPart) -> None:
        """Continue from `part`, whose arrays are copied."""
        self.exact, self.weight = part.exact, part.weight
        self.mean, self.low = part.mean.copy(), part.low.copy()
        self._diagonal, self._cross = part.diagonal.copy(), part.cross.copy(order="C")
        self._scatter, self._nonzero = part.scatter.copy(order="C"), part.counts.copy()

    @property
    def variances(self) -> np.ndarray:
        """Diagonal (features,) of the centred scatter Σ w (x − x̄)². Read only."""
        return np.diagonal(self._scatter) if self.exact else self._diagonal

    def freeze(self) -> CentredPart:
        """Return a copy of the sums so far."""
        scatter = mirrored(self._scatter) if self.exact else self._scatter
        mean, low, diagonal, cross = (a.copy() for a in (self.mean, self.low, self._diagonal, self._cross))
        return CentredPart(self.exact, self.weight, mean, low, diagonal, scatter, cross, self._nonzero.copy())

    def rescale(self, factor: float) -> None:
        """Multiply every sum by factor. The means do not change."""
        self.weight *= factor
        for sums in (self._diagonal, self._scatter, self._cross):
            sums *= factor

    def grow(self, width: int, columns: int) -> None:
        """Make room for more features and more target columns.

        New features count as 0 in all rows so far.

        width: number of features.
        columns: number of target columns.
        """
        if self._cross.shape == (width, columns):
            return
        self._cross = pad_to_shape(self._cross, (width, columns))
        self.mean, self.low, self._nonzero = (pad_to_shape(a, (width,)) for a in (self.mean, self.low, self._nonzero))
        self._scatter = pad_to_shape(self._scatter, (width, width)) if self.exact else self._scatter
        self._diagonal = self._diagonal if self.exact else pad_to_shape(self._diagonal, (width,))

    def add(self, X: Rows, weights: np.ndarray, total: float, targets: "TargetRows | None" = None) -> np.ndarray | None:
        """Add rows with their weights and targets.

        Returns an array (b + 1, d) for b rows and d features: the rows √w (x − their mean), then
        the joining row. The joining row is √(N n / (N + n)) times the rows' mean minus the mean
        before, for the weight N before and the rows' weight n. Returns None if the rows weigh
        nothing, or if sparse rows were added without making them dense.

        X: (b, ≤ d), dense of any float type or CSR.
        weights: (b,), weights w.
        total: sum of the weights.
        targets: targets of the rows. None if there are no targets.
        """
        if not total > 0.0:
            return None
        if not isinstance(X, np.ndarray):
            if self.exact and X.shape[0] > 1 and X.nnz < DENSE_SHARE * X.shape[0] * len(self.mean):
                self._add_sparse(X, weights, total, targets)
                return None
            X = pad_to_shape(X.toarray(), (X.shape[0], len(self.mean)))
        return self._add_dense(X, weights, total, targets)

    def _add_dense(self, X: np.ndarray, weights: np.ndarray, total: float, targets: "TargetRows | None") -> np.ndarray:
        if X.shape[0] == 1:
            return self._add_row(X, weights, total, targets)
        rows = np.empty((len(X) + 1, X.shape[1]))
        joining = self._join(*centre_rows(X, weights, total, rows[:-1], self._nonzero), total)
        np.multiply(joining.step, joining.root, out=rows[-1])
        if targets is not None and self._cross.shape[1]:
            own = targets.rows(weights, total, joining.root)
            add_cross_product(self._cross, rows, own)
        if not self.exact:
            self._diagonal += np.einsum("ij,ij->j", rows, rows)
        else:
            add_product(self._scatter, rows)
        return rows

    def _add_row(self, X: np.ndarray, weights: np.ndarray, total: float, targets: "TargetRows | None") -> np.ndarray:
        """Add a single row X (1, features), which is its own mean.

        The row minus its mean is zero. So the row changes the scatter only because its mean
        differs from the mean so far.
        """
        self._nonzero += X[0] != 0.0
        high = X[0].astype(np.float64)
        rows = np.zeros((2, len(high)))
        joining = self._join(high, rows[0].copy(), total)
        np.multiply(joining.step, joining.root, out=rows[1])
        if targets is not None and self._cross.shape[1]:
            self._cross += rows[1][:, None] * targets.rows(weights, total, joining.root)[1]
        if self.exact:
            add_outer(self._scatter, rows[1], 1.0)
        else:
            self._diagonal += rows[1] ** 2
        return rows

    def _add_sparse(self, X: Rows, weights: np.ndarray, total: float, targets: "TargetRows | None") -> None:
        z = shifted_rows(X.indptr, X.indices, X.data, weights, total, self._nonzero)
        joining = self._join(*dd_add(z.shift, np.zeros_like(z.shift), z.rest), total)
        add_products(z.indptr, z.indices, z.values, self._scatter)
        add_outer(self._scatter, z.rest, -total)
        add_outer(self._scatter, joining.step, joining.root**2)
        if targets is not None and self._cross.shape[1]:
            own = targets.rows(weights, total, joining.root)
            shifted = sp.csr_matrix((z.values, z.indices, z.indptr), shape=(X.shape[0], len(self.mean)))
            self._cross += shifted.T @ own[:-1]
            self._cross += np.outer(joining.root * joining.step, own[-1])

    def _join(self, high: np.ndarray, low: np.ndarray, total: float) -> Joining:
        """Include a chunk of rows in the weight and the mean.

        Returns the terms that the caller adds to the other sums.

        high, low: (d,) mean of the chunk as the sum of two numbers.
        total: weight of the chunk.
        """
        if self.weight == 0.0:
            self.weight, self.mean, self.low = total, high, low
            return Joining(np.zeros_like(high), 1.0, 0.0)
        step = (high - self.mean) + (low - self.low)
        both = self.weight + total
        root = float(np.sqrt(self.weight / both * total))
        self.mean, self.low = dd_add(self.mean, self.low, (total / both) * step)
        self.weight = both
        return Joining(step, total / both, root)


class TargetRows(NamedTuple):
    """Targets of a chunk of b rows, in the form from which cross sums are computed.

    Attributes
    ----------
    encoded : Encoded
        Targets as k numeric columns.
    columns : int
        Number of target columns k.
    before : (k,)
        Mean of the targets learned before the chunk.
    values : (b + 1, k) or None
        Continuous targets, centred and weighted, then one more row that joins the chunk to the
        sums before (see `rows`). None for labels.
    """

    encoded: Encoded
    columns: int
    before: np.ndarray
    values: np.ndarray | None = None

    def rows(self, weights: np.ndarray, total: float, root: float) -> np.ndarray:
        """Return the chunk's centred targets, and the row that joins them to the sums before.

        The result is (b + 1, k). Rows 0 … b − 1 are √w (y − ȳ), with ȳ the chunk's mean. The last
        row is root · (ȳ − mean of the targets before the chunk).

        weights: (b,) weights w of the rows.
        total: sum of the weights.
        root: √(N n / (N + n)), N being the weight before the chunk and n the chunk's weight.
        """
        if self.values is not None:
            return self.values
        b = len(weights)
        out = np.empty((b + 1, self.columns))
        columns = dense_columns(self.encoded, 0, b, self.columns)
        own = weights @ columns / total
        np.subtract(columns, own, out=out[:-1])
        out[:-1] *= np.sqrt(weights)[:, None]
        out[-1] = root * (own - self.before)
        return out
