"""Product of a scatter matrix with columns, summed over a stream of blocks of rows.

A = Σ w (x − x̄)(x − x̄)ᵀ is the scatter (features, features) of rows x with weights w about the
mean x̄. P (features, r) are the columns. A is never formed. The state is the product so far
(features, r) and the sum of the projected rows (r,). A block of rows X (rows, features) with the
weights w (rows,) adds [mathematics §4]:

    Z = X P − 1 (x̄ᵀP)
    A P = Xᵀ(w ∘ Z) − x̄ (wᵀZ)

The factors on both sides are centred. If only Z were centred, the error would grow with the square
of the rows' offset from zero (9e-4 at an offset of 1e6). A would also become indefinite if x̄ is
not exactly the rows' mean. With both sides centred, A is positive semidefinite for any x̄.

The compiled kernel adds each sparse row directly to the result. `X.T @ Z` would allocate a
(features, r) array for every block, which costs more than the product itself at 1,000 rows a
block. Dense rows are centred before the product, CHUNK values at a time. A block costs
O(entries · r), and sparse rows are never made dense.
"""

from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import scipy.sparse as sp

from stream_dr.compiled import compiled, readonly
from stream_dr.rows.block import Block

CHUNK = 1 << 20
"""Maximum number of values (8 MB) of a dense block that are centred at a time."""


class ScatterProduct:
    """Product A P of a scatter matrix and columns, summed over blocks of rows.

    A (features, features) is the sum of (x − x̄)(x − x̄)ᵀ over all rows x, where x̄ is `mean`. A
    is never formed. Use an object of this class in a with-block, because the end of the with-block
    stops the threads.

    Parameters
    ----------
    mean : (features,)
        Mean x̄ about which the rows are centred.
    columns : (features, r)
        Columns P.
    scale : (features,) or None
        If given, A is diag(scale) A diag(scale), the scatter of standardised features.
    threads : int
        Number of threads, which take the blocks in turn. Each thread adds to a (features, r) sum
        of its own, so results with different numbers of threads differ by rounding.
    """

    def __init__(
        self, mean: np.ndarray, columns: np.ndarray, scale: np.ndarray | None = None, threads: int = 1
    ) -> None:
        columns = np.ascontiguousarray(columns if scale is None else columns * scale[:, None])
        self._scale = scale
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self._parts = [_PartialProduct(mean, columns) for _ in range(max(1, threads))]
        self._adding: list[Future[None] | None] = [None] * len(self._parts)
        self._blocks = 0

    def __enter__(self) -> "ScatterProduct":
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def add(self, block: Block, weights: np.ndarray | None = None) -> None:
        """Add the rows of one block.

        block: rows (rows, features), with at most as many features as `mean`.
        weights: (rows,) weight of each row. None means 1 for each row.
        """
        if self._pool is None:
            self._parts[0].add(block, weights)
            return
        turn = self._blocks % len(self._parts)
        self._blocks += 1
        self._wait_for_turn(turn)
        self._adding[turn] = self._pool.submit(self._parts[turn].add, block, weights)

    def result(self) -> np.ndarray:
        """Return the product (features, r) float64 summed over all blocks so far."""
        for turn in range(len(self._parts)):
            self._wait_for_turn(turn)
        out = self._parts[0].result()
        for part in self._parts[1:]:
            out += part.result()
        return out if self._scale is None else out * self._scale[:, None]

    def _wait_for_turn(self, turn: int) -> None:
        adding, self._adding[turn] = self._adding[turn], None
        if adding is not None:
            adding.result()


class _PartialProduct:
    """Scatter matrix times columns, of some of the blocks. One thread at a time uses it."""

    def __init__(self, mean: np.ndarray, columns: np.ndarray) -> None:
        self._mean, self._columns = mean, columns
        self._shift = mean @ self._columns
        self._out = np.zeros_like(self._columns)
        self._total = np.zeros(self._columns.shape[1])

    def add(self, block: Block, weights: np.ndarray | None) -> None:
        """Add one block's rows."""
        if sp.issparse(block.X):
            self._add_sparse(block.X, weights)
        else:
            self._add_dense(block.X, weights)

    def result(self) -> np.ndarray:
        """Return the sum (features, r) of the blocks added here, before the scaling."""
        return self._out - np.outer(self._mean, self._total)

    def _add_sparse(self, X: sp.csr_matrix, weights: np.ndarray | None) -> None:
        w = np.ones(X.shape[0]) if weights is None else weights
        rows = map(readonly, (X.indptr, X.indices, X.data, w))
        _add_sparse_product(*rows, self._columns, self._shift, self._out, self._total)

    def _add_dense(self, X: np.ndarray, weights: np.ndarray | None) -> None:
        rows = max(1, CHUNK // max(1, X.shape[1]))
        for at in range(0, X.shape[0], rows):
            centred = X[at : at + rows] - self._mean
            z = centred @ self._columns
            if weights is not None:
                z *= weights[at : at + rows, None]
            # The rows are centred already, so no product with the mean is subtracted at the end.
            self._out += centred.T @ z


@compiled(fastmath={"reassoc", "contract", "nsz"})
def _add_sparse_product(indptr, indices, data, weights, columns, shift, out, total):  # type: ignore[no-untyped-def]
    """Add sparse rows X to the sums, row by row.

    Xᵀ(w ∘ Z) is added to `out` and wᵀZ to `total`, for Z = X columns − shift and the weights w.

    indptr, indices, data: CSR arrays of X, (rows + 1,), (entries,) and (entries,).
    weights: (rows,).
    columns, out: (features, r).
    shift: (r,) mean of the rows times the columns.
    total: (r,) weighted sum of the projected rows.
    """
    r = columns.shape[1]
    z = np.empty(r)

    for i in range(len(indptr) - 1):
        if weights[i] == 0.0:
            continue
        for c in range(r):
            z[c] = -shift[c]
        for e in range(indptr[i], indptr[i + 1]):
            j, v = indices[e], np.float64(data[e])
            for c in range(r):
                z[c] += v * columns[j, c]

        for c in range(r):
            z[c] *= weights[i]
            total[c] += z[c]
        for e in range(indptr[i], indptr[i + 1]):
            j, v = indices[e], np.float64(data[e])
            for c in range(r):
                out[j, c] += v * z[c]
