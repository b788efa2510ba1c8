"""CentredSums: centred sums to which rows are added [mathematics §1].

Rows may be dense. They may also be sparse if the whole scatter matrix is stored.

Rows are added in chunks. A chunk is centred on the mean of its rows. The sums of the chunk are
then joined to the earlier sums by the formula of Chan, Golub and LeVeque. This formula adds the
outer product of a vector with itself. The vector is the difference of the two means, multiplied by
a factor. The vector is appended to the centred chunk as one more row, the joining row. So one
matrix product computes all terms.

Sparse rows with few nonzeros are not centred but shifted. Products of few rows are added in place,
so a small batch allocates no large array.

A dense row of d features and k target columns costs d k multiplications, plus d² / 2 with exact
scatter or d without. A sparse row costs nonzeros² / 2. A batch of sparse rows costs d² more.
Temporary memory is one chunk of 8 MB. Only the lower triangle of the scatter matrix is updated.
`freeze` returns the symmetric matrix.

numpy and scipy each have a BLAS library with threads of its own. After a product, the threads of
one library stay busy for a while on cores that the other library needs. So all products of a batch
use the same library. Batches of many rows use numpy, like the other products of the program.
Batches of few rows use scipy, whose function dsyrk adds a product to a matrix in place.

Sums of products lose digits for a feature whose mean is large compared with its standard
deviation. A feature of sparse rows can have a large mean only if it is nonzero in many rows. So
a feature is shifted if the rows in which it is nonzero have at least half of the batch's weight. To shift a
feature means to subtract the mean of its nonzeros from all of its values. Its zeros then become
stored entries.

After the shift, |mean|/std of every column is at most about 1, and sums of products lose no
digits. The shifted rows have at most twice as many stored entries. A shift costs O(nonzeros + d)
for d features. Adding the products of a row costs nonzeros² / 2 additions.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg.blas import dgemm, dsyr, dsyrk

from stream_dr.batch.block import Rows
from stream_dr.compiled import compiled, readonly_view
from stream_dr.statistics.moments.centred_part import CentredPart, add_to_double_double, pad_to_shape
from stream_dr.statistics.moments.encoding import EncodedTargets, dense_encoded_rows

CHUNK_VALUES = 1 << 20
"""Number of values in a chunk of dense rows, which are 8 MB.

The rows of a chunk are centred together.
"""

DENSE_SHARE = 0.15
"""Smallest share of nonzero values at which sparse rows are made dense.

From this share on, products of dense rows are faster to compute than products of sparse rows.
"""


class CentredSums:
    """Growing weight, mean and centred second moments of rows.

    `add` adds rows. `freeze` returns the sums as a CentredPart.
    """

    def __init__(self, part: CentredPart) -> None:
        """Continue from the sums in `part`, whose arrays are copied."""
        self.exact = part.exact
        self.weight = part.weight
        self.mean = part.mean.copy()
        self.low = part.low.copy()
        self._diagonal = part.diagonal.copy()
        self._cross = part.cross.copy(order="C")
        self._scatter = part.scatter.copy(order="C")
        self._nonzero = part.nonzero.copy()

    @property
    def sums_of_squares(self) -> np.ndarray:
        """Sums of squared deviations of features from their means.

        The array is (features,) and read-only. For the values x of a feature, with weights w and
        mean x̄, the sum is Σ w (x − x̄)². It is not divided by the number of rows.
        """
        return np.diagonal(self._scatter) if self.exact else self._diagonal

    def freeze(self) -> CentredPart:
        """Return a copy of the sums as a CentredPart."""
        scatter = self._scatter
        if self.exact:
            # Only the lower triangle is up to date. Return the symmetric matrix.
            scatter = np.tril(scatter)
            scatter += np.tril(scatter, -1).T
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

    def add_rows(
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
        if X.shape[0] == 1:
            return self._add_single(X, weights, added_weight, targets)
        return self._add_dense(X, weights, added_weight, targets)

    def _add_dense(
        self, X: np.ndarray, weights: np.ndarray, added_weight: float, targets: "TargetRows | None"
    ) -> np.ndarray:
        # `rows` gets the centred rows and, later, a last row that joins them to the earlier rows.
        # The last row is a factor times (mean of these rows − mean of the earlier rows).
        rows = np.empty((len(X) + 1, X.shape[1]))
        mean, low = centre_rows(X, weights, added_weight, rows[:-1], self._nonzero)
        step, root = self._add_chunk_to_mean(mean, low, added_weight)
        np.multiply(step, root, out=rows[-1])

        # BLAS raises an error for rows without features. (A table may have only constant columns.)
        few = len(rows) < FEW
        # Add the products of features and targets, then the products of features and features.
        if targets is not None and self._cross.shape[1]:
            own = targets.rows(weights, added_weight, root)
            if self._cross.size and few:
                dgemm(1.0, own.T, rows.T, beta=1.0, c=self._cross.T, trans_b=1, overwrite_c=1)
            else:
                self._cross += rows.T @ own
        if not self.exact:
            self._diagonal += np.einsum("ij,ij->j", rows, rows)
        elif self._scatter.size and few:
            dsyrk(1.0, rows.T, beta=1.0, c=self._scatter.T, overwrite_c=1)
        else:
            self._scatter += rows.T @ rows
        return rows

    def _add_single(
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
        step, root = self._add_chunk_to_mean(high, rows[0].copy(), added_weight)
        np.multiply(step, root, out=rows[1])
        if targets is not None and self._cross.shape[1]:
            self._cross += rows[1][:, None] * targets.rows(weights, added_weight, root)[1]
        if self.exact:
            add_outer_product(self._scatter, rows[1], 1.0)
        else:
            self._diagonal += rows[1] ** 2
        return rows

    def _add_sparse_rows(self, X: Rows, weights: np.ndarray, added_weight: float, targets: "TargetRows | None") -> None:
        shifted, shift = shift_mostly_nonzero_features(X, weights, added_weight, self._nonzero)
        transposed = shifted.T
        rest = transposed @ weights / added_weight
        step, root = self._add_chunk_to_mean(*add_to_double_double(shift, np.zeros_like(shift), rest), added_weight)
        shifted.data *= np.repeat(np.sqrt(weights), np.diff(shifted.indptr))
        add_sparse_products(*map(readonly_view, (shifted.indptr, shifted.indices, shifted.data)), self._scatter)
        add_outer_product(self._scatter, rest, -added_weight)
        add_outer_product(self._scatter, step, root**2)
        if targets is not None and self._cross.shape[1]:
            own = targets.rows(weights, added_weight, root)
            self._cross += transposed @ own[:-1]
            self._cross += np.outer(root * step, own[-1])

    def _add_chunk_to_mean(
        self, chunk_mean: np.ndarray, chunk_mean_low: np.ndarray, chunk_weight: float
    ) -> tuple[np.ndarray, float]:
        """Add a chunk of rows to the weight and mean.

        Returns `step` (features,), which is the mean of the chunk minus the mean of the earlier
        rows, and `root`, which is √(N n / (N + n)). N is the weight of the earlier rows, and n the
        weight of the chunk. The caller adds the outer product of root · step with itself to the
        scatter matrix.

        chunk_mean, chunk_mean_low: (features,) mean of the chunk as the sum of two arrays.
        chunk_weight: weight of the chunk.
        """
        if self.weight == 0.0:
            self.weight = chunk_weight
            self.mean = chunk_mean
            self.low = chunk_mean_low
            return np.zeros_like(chunk_mean), 0.0
        step = (chunk_mean - self.mean) + (chunk_mean_low - self.low)
        both = self.weight + chunk_weight
        root = float(np.sqrt(self.weight / both * chunk_weight))
        self.mean, self.low = add_to_double_double(self.mean, self.low, (chunk_weight / both) * step)
        self.weight = both
        return step, root


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


FEW = 256
"""Number of rows below which BLAS adds a product to the sums in place.

The product is a matrix (features, features). For few rows, adding a separate matrix to the sums
costs as much as computing it.
"""


def centre_rows(
    X: np.ndarray,
    weights: np.ndarray,
    total_weight: float,
    centred_rows: np.ndarray,
    nonzero_counts_to_update: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Centre rows, and multiply them by their weights' square roots.

    Writes √w (x − mean) into `centred_rows` for each row x of weight w. Returns two arrays (d,)
    for d features, whose sum is the mean of the rows. The second array holds the digits that do
    not fit into the first. So the mean is exact to 1e-16 of the rows' standard deviation, even if
    the rows are far from 0.

    X: (b, d), b rows x.
    weights: (b,) weights w.
    total_weight: sum of the weights, above 0.
    centred_rows: (b, d) float64, the output.
    nonzero_counts_to_update: (d,), changed in place. To the entry of each feature is added the
        number of rows of weight above 0 in which the feature is not 0.
    """
    # For each feature, count the rows of weight above 0 in which the feature is not 0.
    weighing = X if weights.all() else X[weights > 0]
    zero = weighing == 0.0
    nonzero_counts_to_update += len(weighing) - np.count_nonzero(zero, axis=0) if zero.any() else len(weighing)

    # Copy the rows as float64, because numpy multiplies other types without BLAS.
    centred_rows[:] = X
    # Compute the mean by einsum, which uses no threads.
    # Threads of BLAS would stay busy afterwards, on cores that later matrix products need.
    point = np.einsum("i,ij->j", weights, centred_rows) / total_weight
    centred_rows -= point
    step = np.einsum("i,ij->j", weights, centred_rows) / total_weight
    centred_rows -= step
    if (weights != 1.0).any():
        centred_rows *= np.sqrt(weights)[:, None]
    return add_to_double_double(point, np.zeros_like(point), step)


def add_outer_product(lower_scatter: np.ndarray, vector: np.ndarray, factor: float) -> None:
    """Add factor · vector vectorᵀ to a matrix's lower triangle.

    lower_scatter: (features, features), changed in place.
    vector: (features,).
    """
    if len(vector):
        dsyr(factor, vector, a=lower_scatter.T, overwrite_a=1)


def shift_mostly_nonzero_features(
    X: sp.csr_matrix, weights: np.ndarray, total_weight: float, nonzero_counts_to_update: np.ndarray
) -> tuple[sp.csr_matrix, np.ndarray]:
    """Return shifted rows, and the shift of each feature.

    To shift a feature means to subtract the mean of its nonzeros from all of its values. A feature
    is shifted if the rows in which it is nonzero have at least half of the total weight. Sums of
    products of the shifted rows then lose no digits. The shift of the other features is 0.

    X: (rows, columns), at most as many columns as features.
    weights: (rows,) float64.
    total_weight: sum of the weights, above 0.
    nonzero_counts_to_update: (features,), changed in place. To the entry of each feature is added
        the number of rows of weight above 0 in which the feature is not 0.
    """
    n_rows = X.shape[0]
    n_features = len(nonzero_counts_to_update)
    values = X.data.astype(np.float64)
    features = X.indices.astype(np.intp)
    entry_weights = np.repeat(weights, np.diff(X.indptr)) * (values != 0.0)
    nonzero_counts_to_update += np.bincount(features, entry_weights > 0.0, n_features)

    rows = sp.csr_matrix((values, X.indices, X.indptr), shape=(n_rows, n_features))
    shift = np.zeros(n_features)
    weight = np.bincount(features, entry_weights, n_features)
    shifted = np.flatnonzero(weight >= 0.5 * total_weight)
    if not len(shifted):
        return rows, shift

    # The mean is summed about one of the values, so that it is exact for a constant feature.
    counted = entry_weights > 0.0
    point = np.zeros(n_features)
    point[features[counted]] = values[counted]
    sums = np.bincount(features, entry_weights * (values - point[features]), n_features)
    shift[shifted] = point[shifted] + sums[shifted] / weight[shifted]

    indptr = len(shifted) * np.arange(n_rows + 1)
    rows -= sp.csr_matrix((np.tile(shift[shifted], n_rows), np.tile(shifted, n_rows), indptr), shape=rows.shape)
    return rows, shift


@compiled()
def add_sparse_products(indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, lower_scatter: np.ndarray) -> None:
    """Add each CSR row's outer product to a matrix.

    Only the lower triangle of the matrix is changed.

    indptr: (rows + 1,), start of each CSR row in `indices` and `values`.
    indices, values: (entries,), feature and value of each entry of the CSR rows.
    lower_scatter: (features, features), the matrix, changed in place.
    """
    for i in range(len(indptr) - 1):
        for s in range(indptr[i], indptr[i + 1]):
            a, v = indices[s], values[s]
            for t in range(indptr[i], indptr[i + 1]):
                if indices[t] <= a:
                    lower_scatter[a, indices[t]] += v * values[t]
