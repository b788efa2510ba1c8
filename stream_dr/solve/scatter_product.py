"""Product of a scatter matrix and columns, summed over blocks of rows.

The scatter matrix A (features, features) is the sum of w (x − x̄)(x − x̄)ᵀ over all rows x. w is
the row's weight, and x̄ (features,) is the mean. P (features, r) are the columns. A is never
formed. A block of rows X (rows, features) with the weights w (rows,) adds the following
to the product A P [mathematics §4]:

    Xᵀ(w ∘ Z) − x̄ (wᵀZ),  where Z = X P − 1 (x̄ᵀP)

Xᵀ(w ∘ Z) and wᵀZ (r,) are summed over the blocks. After the last block, x̄ is multiplied by
the sum of wᵀZ.

Both factors (x − x̄) of A are centred, the left factor and the right factor. If only the right
factor were centred, the error would grow with the square of the rows' distance from zero (9e-4 at
a distance of 1e6). Also, A would not be positive semidefinite if x̄ is not exactly the rows' mean.

A block costs O(entries · r), and sparse rows are never made dense. A compiled function adds each
sparse row directly to the sum. `X.T @ Z` would allocate an array (features, r) for every block,
which costs more than the product itself if blocks have 1,000 rows. Dense rows are centred before
the product, CHUNK values at a time.
"""

from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import scipy.sparse as sp

from stream_dr.compiled import compiled, readonly_view
from stream_dr.rows.block import Block

CHUNK = 1 << 20
"""Maximum number of values (8 MB) of a dense block that are centred at a time."""


class ScatterProduct:
    """Product of a scatter matrix and columns, summed over blocks of rows.

    The sum is computed in one or more threads. The scatter matrix A (features, features) is the
    sum of (x − x̄)(x − x̄)ᵀ over all rows x, times the weights of the rows. x̄ is `mean`. The
    product is computed without forming A. Use an object of this class in a with-block. The threads
    are stopped at the end of the with-block.

    Parameters
    ----------
    mean : (features,)
        Mean x̄ about which the rows are centred.
    columns : (features, r)
        Columns by which A is multiplied.
    scale : (features,) or None
        Factor by which each feature is multiplied, for example to standardise it. None means 1.
    threads : int
        Number of threads and of partial sums (features, r). Block i is added to partial sum
        i modulo `threads`. So results with different numbers of threads differ by rounding errors.
    """

    def __init__(
        self, mean: np.ndarray, columns: np.ndarray, scale: np.ndarray | None = None, threads: int = 1
    ) -> None:
        columns = np.ascontiguousarray(columns if scale is None else columns * scale[:, None])
        self._scale = scale
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self._parts = [_PartialScatterProduct(mean, columns) for _ in range(max(1, threads))]
        self._running_additions: list[Future[None] | None] = [None] * len(self._parts)
        self._blocks = 0

    def __enter__(self) -> "ScatterProduct":
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def add(self, block: Block, weights: np.ndarray | None = None) -> None:
        """Add the rows of one block to the product.

        With several threads, the block is added later, before `result` returns.

        block: block of rows. Sparse rows may have fewer features than `mean`.
        weights: (rows,), weight of each row. None means 1 for each row.
        """
        if self._pool is None:
            self._parts[0].add(block, weights)
            return

        # The product is the sum of one partial product per thread.
        # Add blocks to the partial products in turn. A partial product takes one block at a time.
        turn = self._blocks % len(self._parts)
        self._blocks += 1
        self._wait_for_part(turn)
        self._running_additions[turn] = self._pool.submit(self._parts[turn].add, block, weights)

    def result(self) -> np.ndarray:
        """Return the product of the scatter matrix and the columns.

        The result is (features, r) for r columns.
        The product is over all blocks that were added so far.
        """
        for turn in range(len(self._parts)):
            self._wait_for_part(turn)
        out = self._parts[0].result()
        for part in self._parts[1:]:
            out += part.result()
        return out if self._scale is None else out * self._scale[:, None]

    def _wait_for_part(self, part_number: int) -> None:
        """Wait until no thread adds to one partial product.

        If the last addition raised an error in its thread, the error is raised here.

        part_number: index of the partial product.
        """
        adding, self._running_additions[part_number] = self._running_additions[part_number], None
        if adding is not None:
            adding.result()


class _PartialScatterProduct:
    """Product of a scatter matrix and columns over some blocks.

    Two threads must not use one object at the same time.
    """

    def __init__(self, mean: np.ndarray, columns: np.ndarray) -> None:
        self._mean, self._columns = mean, columns
        self._shift = mean @ self._columns
        self._out = np.zeros_like(self._columns)
        self._total = np.zeros(self._columns.shape[1])

    def add(self, block: Block, weights: np.ndarray | None) -> None:
        """Add the rows of one block.

        weights: (rows,) weights of the rows, or None.
        """
        if sp.issparse(block.X):
            self._add_sparse_rows(block.X, weights)
        else:
            self._add_dense_rows(block.X, weights)

    def result(self) -> np.ndarray:
        """Return the product (features, columns) over the blocks added here."""
        return self._out - np.outer(self._mean, self._total)

    def _add_sparse_rows(self, X: sp.csr_matrix, weights: np.ndarray | None) -> None:
        """Add CSR rows (rows, features), with weights (rows,) or None."""
        w = np.ones(X.shape[0]) if weights is None else weights
        rows = map(readonly_view, (X.indptr, X.indices, X.data, w))
        _add_sparse_rows_to_product(*rows, self._columns, self._shift, self._out, self._total)

    def _add_dense_rows(self, X: np.ndarray, weights: np.ndarray | None) -> None:
        """Add dense rows (rows, features), with weights (rows,) or None."""
        rows = max(1, CHUNK // max(1, X.shape[1]))
        for at in range(0, X.shape[0], rows):
            centred = X[at : at + rows] - self._mean
            z = centred @ self._columns
            if weights is not None:
                z *= weights[at : at + rows, None]
            # The result is `_out` minus a correction by `_total`, which only sparse rows need.
            # Dense rows need no correction, because they are already centred.
            self._out += centred.T @ z


@compiled(fastmath={"reassoc", "contract", "nsz"})
def _add_sparse_rows_to_product(indptr, indices, data, weights, columns, shift, out, total):  # type: ignore[no-untyped-def]
    """Add sparse rows to the product of scatter and columns.

    The scatter is that of the sparse rows. The product is `out` minus the outer product of the
    rows' mean and `total`. Let x be a row, w its weight, and z = x @ columns − shift. The row adds
    w x zᵀ to `out` and w z to `total`.

    indptr: (rows + 1,), start of each CSR row in `indices` and `data`.
    indices: (entries,), column of each entry.
    data: (entries,), value of each entry.
    weights: (rows,), weight of each row.
    columns: (features, r), the r columns by which the scatter matrix is multiplied.
    shift: (r,), mean of the rows times the columns.
    out: (features, r), sum that is changed in place.
    total: (r,), sum that is changed in place.
    """
    r = columns.shape[1]
    z = np.empty(r)

    for i in range(len(indptr) - 1):
        if weights[i] == 0.0:
            continue

        # Compute z, the centred row times the columns. `shift` is the mean times the columns.
        for c in range(r):
            z[c] = -shift[c]
        for e in range(indptr[i], indptr[i + 1]):
            j, v = indices[e], np.float64(data[e])
            for c in range(r):
                z[c] += v * columns[j, c]

        # Add the row's weight times z to `total`.
        # Add the outer product of the row and the weighted z to `out`.
        for c in range(r):
            z[c] *= weights[i]
            total[c] += z[c]
        for e in range(indptr[i], indptr[i + 1]):
            j, v = indices[e], np.float64(data[e])
            for c in range(r):
                out[j, c] += v * z[c]
