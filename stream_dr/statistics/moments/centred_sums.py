"""CentredSums: centred sums to which rows are added [mathematics §1].

Rows may be dense. They may also be sparse if the whole scatter matrix is stored.

Rows are added in chunks. A chunk is centred on the mean of its rows. The sums of the chunk are
then joined to the earlier sums by the formula of Chan, Golub and LeVeque. This formula adds the
outer product of a vector with itself. The vector is the difference of the two means, multiplied by
a factor. The vector is appended to the centred chunk as one more row, the joining row. So one
matrix product computes all terms.

Sparse rows with few nonzeros are not centred but shifted (shifted_rows.py). Products of few rows
are added in place (dense_kernels.py), so a small batch allocates no large array.

A dense row of d features and k target columns costs d k multiplications, plus d² / 2 with exact
scatter or d without. A sparse row costs nonzeros² / 2. A batch of sparse rows costs d² more.
Temporary memory is one chunk of 8 MB. Only the lower triangle of the scatter matrix is updated.
`freeze` returns the symmetric matrix.
"""

from typing import NamedTuple

import numpy as np

from stream_dr.compiled import readonly_view
from stream_dr.rows.block import Rows
from stream_dr.statistics.moments import dense_kernels
from stream_dr.statistics.moments.centred_part import CentredPart, add_to_double_double, pad_to_shape
from stream_dr.statistics.moments.encoding import EncodedTargets, dense_encoded_rows
from stream_dr.statistics.moments.shifted_rows import add_sparse_products, shift_mostly_nonzero_features

CHUNK_VALUES = 1 << 20
"""Number of values in a chunk of dense rows, which are 8 MB.

The rows of a chunk are centred together.
"""

DENSE_SHARE = 0.15
"""Smallest share of nonzero values at which sparse rows are made dense.

From this share on, products of dense rows are faster to compute than products of sparse rows.
"""


def rows_per_chunk(n_features: int) -> int:
    """Return the number of rows to centre at a time.

    n_features: number of features.
    """
    return max(16, CHUNK_VALUES // max(1, n_features))


class Joining(NamedTuple):
    """Terms that add rows to the sums of earlier rows.

    The added rows are called a chunk.

    Attributes
    ----------
    step : (features,)
        Mean of the chunk minus the mean of the earlier rows.
    root : float
        √(N n / (N + n)), where N is the weight of the earlier rows and n the weight of the chunk.
        The outer product of the vector root · step with itself is added to the scatter matrix.
    """

    step: np.ndarray
    root: float


class CentredSums:
    """Growing weight, mean and centred second moments of rows.

    `add` adds rows. `freeze` returns the sums as a CentredPart.
    """

    def __init__(self, part: CentredPart) -> None:
        """Continue from the sums in `part`, whose arrays are copied."""
        self.exact, self.weight = part.exact, part.weight
        self.mean, self.low = part.mean.copy(), part.low.copy()
        self._diagonal, self._cross = part.diagonal.copy(), part.cross.copy(order="C")
        self._scatter, self._nonzero = part.scatter.copy(order="C"), part.nonzero.copy()

    @property
    def sum_of_squares_per_feature(self) -> np.ndarray:
        """Sums of squared deviations of features from their means.

        The array is (features,) and read-only. For the values x of a feature, with weights w and
        mean x̄, the sum is Σ w (x − x̄)². It is not divided by the number of rows.
        """
        return np.diagonal(self._scatter) if self.exact else self._diagonal

    def freeze(self) -> CentredPart:
        """Return a copy of the sums as a CentredPart."""
        scatter = dense_kernels.symmetric_from_lower_triangle(self._scatter) if self.exact else self._scatter
        mean, low, diagonal, cross = (a.copy() for a in (self.mean, self.low, self._diagonal, self._cross))
        return CentredPart(self.exact, self.weight, mean, low, diagonal, scatter, cross, self._nonzero.copy())

    def rescale(self, factor: float) -> None:
        """Multiply the weight and all sums by a factor.

        The means do not change.
        """
        self.weight *= factor
        for sums in (self._diagonal, self._scatter, self._cross):
            sums *= factor

    def grow(self, n_features: int, n_target_columns: int) -> None:
        """Make room for more features and more target columns.

        A new feature counts as 0 in all earlier rows.

        n_features: number of features.
        n_target_columns: number of target columns.
        """
        if self._cross.shape == (n_features, n_target_columns):
            return
        self._cross = pad_to_shape(self._cross, (n_features, n_target_columns))
        means = (self.mean, self.low, self._nonzero)
        self.mean, self.low, self._nonzero = (pad_to_shape(array, (n_features,)) for array in means)
        self._scatter = pad_to_shape(self._scatter, (n_features, n_features)) if self.exact else self._scatter
        self._diagonal = self._diagonal if self.exact else pad_to_shape(self._diagonal, (n_features,))

    def add_and_return_centred_rows(
        self, X: Rows, weights: np.ndarray, added_weight: float, targets: "TargetRows | None" = None
    ) -> np.ndarray | None:
        """Add rows with their weights and targets.

        Returns an array (b + 1, d) for b rows of d features, in which the rows are centred. With x
        an added row, w its weight and x̄ the mean of the added rows, the first b rows are
        √w (x − x̄). The last row is √(N n / (N + n)) · (x̄ − mean of the earlier rows), where N is
        the weight of the earlier rows and n the weight of the added rows. It joins the added rows
        to the earlier sums. `TargetSums` keeps continuous targets in a CentredSums of its own, and
        uses this array.

        Returns None if the sum of the weights is 0, or if the rows are sparse and were not made
        dense.

        X: (b, ≤ d), dense of any float type or CSR.
        weights: (b,) weights w.
        added_weight: sum of the weights.
        targets: targets of the rows. None if there are no targets.
        """
        if not added_weight > 0.0:
            return None
        if not isinstance(X, np.ndarray):
            if self.exact and X.shape[0] > 1 and X.nnz < DENSE_SHARE * X.shape[0] * len(self.mean):
                self._add_sparse_rows(X, weights, added_weight, targets)
                return None
            X = pad_to_shape(X.toarray(), (X.shape[0], len(self.mean)))
        return self._add_dense_and_return_centred_rows(X, weights, added_weight, targets)

    def _add_dense_and_return_centred_rows(
        self, X: np.ndarray, weights: np.ndarray, added_weight: float, targets: "TargetRows | None"
    ) -> np.ndarray:
        if X.shape[0] == 1:
            return self._add_single_and_return_centred_row(X, weights, added_weight, targets)

        # `rows` gets the centred rows and, later, a last row that joins them to the earlier rows.
        # The last row is a factor times (mean of these rows − mean of the earlier rows).
        rows = np.empty((len(X) + 1, X.shape[1]))
        mean, low = dense_kernels.write_centred_rows_and_return_mean_parts(
            X, weights, added_weight, rows[:-1], self._nonzero
        )
        joining = self._add_chunk_to_mean(mean, low, added_weight)
        np.multiply(joining.step, joining.root, out=rows[-1])

        # Add the products of features and targets, then the products of features and features.
        if targets is not None and self._cross.shape[1]:
            own = targets.rows(weights, added_weight, joining.root)
            dense_kernels.add_cross_product(self._cross, rows, own)
        if not self.exact:
            self._diagonal += np.einsum("ij,ij->j", rows, rows)
        else:
            dense_kernels.add_scatter_product(self._scatter, rows)
        return rows

    def _add_single_and_return_centred_row(
        self, X: np.ndarray, weights: np.ndarray, added_weight: float, targets: "TargetRows | None"
    ) -> np.ndarray:
        """Add a single row.

        The row is its own mean, so its centred values are zero. The scatter changes only because
        the row differs from the earlier mean.

        X: (1, features).
        """
        self._nonzero += X[0] != 0.0
        high = X[0].astype(np.float64)
        rows = np.zeros((2, len(high)))
        joining = self._add_chunk_to_mean(high, rows[0].copy(), added_weight)
        np.multiply(joining.step, joining.root, out=rows[1])
        if targets is not None and self._cross.shape[1]:
            self._cross += rows[1][:, None] * targets.rows(weights, added_weight, joining.root)[1]
        if self.exact:
            dense_kernels.add_outer_product_to_lower(self._scatter, rows[1], 1.0)
        else:
            self._diagonal += rows[1] ** 2
        return rows

    def _add_sparse_rows(self, X: Rows, weights: np.ndarray, added_weight: float, targets: "TargetRows | None") -> None:
        shifted, shift = shift_mostly_nonzero_features(X, weights, added_weight, self._nonzero)
        transposed = shifted.T
        rest = transposed @ weights / added_weight
        joining = self._add_chunk_to_mean(*add_to_double_double(shift, np.zeros_like(shift), rest), added_weight)
        shifted.data *= np.repeat(np.sqrt(weights), np.diff(shifted.indptr))
        add_sparse_products(*map(readonly_view, (shifted.indptr, shifted.indices, shifted.data)), self._scatter)
        dense_kernels.add_outer_product_to_lower(self._scatter, rest, -added_weight)
        dense_kernels.add_outer_product_to_lower(self._scatter, joining.step, joining.root**2)
        if targets is not None and self._cross.shape[1]:
            own = targets.rows(weights, added_weight, joining.root)
            self._cross += transposed @ own[:-1]
            self._cross += np.outer(joining.root * joining.step, own[-1])

    def _add_chunk_to_mean(self, chunk_mean: np.ndarray, chunk_mean_low: np.ndarray, chunk_weight: float) -> Joining:
        """Add a chunk of rows to the weight and mean.

        Returns a Joining: the difference of the chunk's mean and the earlier mean, and the factors
        by which the caller adds this difference to the second moments.

        chunk_mean, chunk_mean_low: (features,) mean of the chunk as the sum of two arrays.
        chunk_weight: weight of the chunk.
        """
        if self.weight == 0.0:
            self.weight, self.mean, self.low = chunk_weight, chunk_mean, chunk_mean_low
            return Joining(np.zeros_like(chunk_mean), 0.0)
        step = (chunk_mean - self.mean) + (chunk_mean_low - self.low)
        both = self.weight + chunk_weight
        root = float(np.sqrt(self.weight / both * chunk_weight))
        self.mean, self.low = add_to_double_double(self.mean, self.low, (chunk_weight / both) * step)
        self.weight = both
        return Joining(step, root)


class TargetRows(NamedTuple):
    """Targets of a chunk of rows, for the cross sums.

    The chunk has b rows. Cross sums are products of features and targets, summed over the rows.

    Attributes
    ----------
    encoded : EncodedTargets
        Targets as k numeric columns.
    n_target_columns : int
        Number of target columns k.
    before : (k,)
        Mean of the targets of all earlier rows.
    values : (b + 1, k) or None
        Continuous targets, centred, and a last row that joins them to the earlier sums. The method
        `rows` returns this array. None for labels, for which the method `rows` computes the array.
    """

    encoded: EncodedTargets
    n_target_columns: int
    before: np.ndarray
    values: np.ndarray | None = None

    def rows(self, weights: np.ndarray, weight_of_these_rows: float, joining_factor: float) -> np.ndarray:
        """Return the centred targets, followed by a joining row.

        The result is (b + 1, k) for b rows and k target columns. With y the targets of a row, w
        its weight, and ȳ the mean of the b targets, the first b rows are √w (y − ȳ). The joining
        row is joining_factor · (ȳ − mean of the earlier targets). With it, a product of the result
        and the centred features also contains the term for the difference of the means.

        weights: (b,) weights w of the rows.
        weight_of_these_rows: sum of the weights.
        joining_factor: √(N n / (N + n)) for the earlier rows' weight N and the chunk's weight n.
        """
        if self.values is not None:
            return self.values
        b = len(weights)
        out = np.empty((b + 1, self.n_target_columns))
        columns = dense_encoded_rows(self.encoded, b, self.n_target_columns)
        own = weights @ columns / weight_of_these_rows
        np.subtract(columns, own, out=out[:-1])
        out[:-1] *= np.sqrt(weights)[:, None]
        out[-1] = joining_factor * (own - self.before)
        return out
