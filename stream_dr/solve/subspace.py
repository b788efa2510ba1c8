"""Products with the scatter, and a growing basis on which it is exact.

The scatter is that of the rows' coordinates along the basis vectors. PCA, SKM, MMC and PLSDA can
be solved by passes over the rows without forming the scatter Cxx (features, features) of the
centred rows. The state is an orthonormal basis V (features, m), called a block Krylov basis, and
the product Cxx V. In each step, the caller computes the product of Cxx and some new directions.
Then the directions become columns of V.

The small scatter VᵀCxxV (m, m) is exact. The method's usual solver is applied to the small
scatter, as if the columns of V were the features. So no method needs a second solver.

Let X (features, p) be the method's solution, whose columns lie in the span of V. The part of Cxx X
outside this span shows how far the solution is from exact, and in which directions V must grow.
PLSDA with p components is exact after p steps. The other methods converge [mathematics §4].

When m reaches a maximum, the caller replaces the basis by a basis of the solution's span and
continues. This is called thick restarting.

`ScatterProduct` multiplies a scatter matrix and columns, summed over blocks of rows. The scatter
matrix A (features, features) is the sum of w (x − x̄)(x − x̄)ᵀ over all rows x. w is the row's
weight, and x̄ (features,) is the mean. P (features, r) are the columns. A is never formed. A block
of rows X (rows, features) with the weights w (rows,) adds the following to the product A P
[mathematics §4]:

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
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from stream_dr.batch.block import Block
from stream_dr.checks import check_dtype_and_shapes, check_finite_arrays, shape_of_checked_matrix
from stream_dr.compiled import compiled, readonly_view
from stream_dr.solve.spectral import thin_svd
from stream_dr.statistics.protocol import register_nested_state

_NOISE = 1e-13
"""Length up to which a new basis vector is rounding error.

The vector is what remains of columns of length 1 after their part along the basis is subtracted.
"""


@register_nested_state
class Subspace(NamedTuple):
    """Growing orthonormal basis, in whose span a method is solved.

    Let V (features, m) be the basis of m vectors, and Cxx (features, features) the scatter of the
    centred rows. In each step, the basis grows by r new vectors, the directions.

    Attributes
    ----------
    basis : (features, m) float64
        V, with orthonormal columns.
    images : (features, m) float64
        Product Cxx V.
    directions : (features, r) float64
        Orthonormal vectors, orthogonal to V, which `extend_subspace` adds to the basis. The caller
        computes the product of Cxx and these vectors for `extend_subspace`. If r = 0, the basis
        cannot grow, and solutions in the span of V are exact.
    """

    basis: np.ndarray
    images: np.ndarray
    directions: np.ndarray

    def check(self, features: int | None = None) -> None:
        """Raise DamagedFile unless the Subspace's arrays fit together.

        `basis` and `images` must be (features, m), and `directions` (features, r), all of them
        finite float64.

        features: expected number of features. None means the number of rows of `directions`.
        """
        if features is None:
            features = len(self.directions)
        m = shape_of_checked_matrix(self, "basis")[1]
        r = shape_of_checked_matrix(self, "directions")[1]
        check_dtype_and_shapes(self, np.float64, basis=(features, m), images=(features, m), directions=(features, r))
        check_finite_arrays(self, "basis", "images", "directions")

    @property
    def scatter(self) -> np.ndarray:
        """Scatter VᵀCxxV (m, m) of the rows in the basis V.

        V (features, m) is `basis`, and Cxx (features, features) the scatter of the centred rows.
        """
        small = self.basis.T @ self.images
        return np.asarray((small + small.T) / 2)


def start_subspace(columns: np.ndarray) -> Subspace:
    """Return the Subspace before the first step of the solver.

    A Subspace has an orthonormal basis, here empty, and the field `directions`: vectors that the
    next step adds to the basis. Here these are orthonormal vectors that span `columns`, except for
    parts of the columns that are only rounding error.

    columns: (features, k), k columns that the basis will span.
    """
    empty = np.zeros((len(columns), 0))
    return Subspace(empty, empty, orthonormal_outside_basis(columns, empty))


def extend_subspace(state: Subspace, scatter_times_directions: np.ndarray) -> Subspace:
    """Add the vectors `state.directions` to the basis.

    The result also has the vectors to add in the next step. They span the part of
    `scatter_times_directions` that lies outside the new basis.

    scatter_times_directions: (features, r), the product of the scatter (features, features) of the
        centred rows and the r vectors `state.directions`.

    Costs O(features · m · r) for a basis of m vectors.
    """
    basis = np.hstack([state.basis, state.directions])
    images = np.hstack([state.images, scatter_times_directions])
    return Subspace(basis, images, orthonormal_outside_basis(scatter_times_directions, basis))


def restart_from_solution(state: Subspace, solution_coefficients: np.ndarray) -> Subspace:
    """Return a smaller Subspace, whose basis spans only the current solution.

    A Subspace has an orthonormal basis, and the field `directions`: vectors that the next step adds
    to the basis. The solver calls this function when the basis has become too large. The solution X
    (features, p) lies in the span of the old basis, and the new basis spans X. The new directions
    span the part of Cxx X outside the new basis. Cxx (features, features) is the scatter of the
    centred rows.

    state: the Subspace with the old basis of m vectors.
    solution_coefficients: (m, p). Column j has the coefficients of column j of X in the m vectors
        of the old basis.
    """
    # The columns of `rotation` (m, p) are orthonormal, and so are those of the old basis V. So
    # V rotation is an orthonormal basis of the solution's span, and `images` is Cxx V rotation.
    rotation = np.linalg.qr(solution_coefficients)[0]
    basis = state.basis @ rotation
    images = state.images @ rotation
    return Subspace(basis, images, orthonormal_outside_basis(images, basis))


def relative_subspace_residual(state: Subspace, solution_coefficients: np.ndarray) -> float:
    """Return the relative residual of a solution in the basis.

    Let V (features, m) be the orthonormal basis `state.basis`, X (features, p) orthonormal vectors
    that span the solution, and Cxx (features, features) the scatter of the centred rows. The part
    of Cxx X outside the span of V is R = Cxx X − VVᵀ Cxx X. The result is ‖R‖ / ‖Cxx X‖. It is 0
    if the solution is exact. If p = 0, the result is 1 if the basis can still grow, else 0.

    solution_coefficients: (m, p). Column j has the coefficients of solution column j in the m
        vectors of V.
    """
    if solution_coefficients.shape[1] == 0:
        # The solution has no columns yet, but may get some when the basis grows.
        # For example, MMC may have a positive eigenvalue only on a larger basis.
        if state.directions.shape[1]:
            return 1.0
        return 0.0

    # `image` (features, p) is Cxx X, because `state.images` (features, m) is Cxx V. If it is zero,
    # it lies in the span of V, so the residual is 0.
    image = state.images @ np.linalg.qr(solution_coefficients)[0]
    size = float(np.linalg.norm(image))
    if size:
        return float(np.linalg.norm(image - state.basis @ (state.basis.T @ image)) / size)
    return 0.0


def orthonormal_outside_basis(columns: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """Return orthonormal vectors that together with `basis` span `columns`.

    The vectors (features, r) are also orthogonal to `basis`. Vectors that are only rounding error
    are dropped, so r is at most the rank of the columns.

    columns: (features, k), k columns.
    basis: (features, m), m orthonormal vectors.
    """
    # Scale the columns to length 1, so that _NOISE is a relative size. Columns of zeros are
    # dropped.
    size = np.linalg.norm(columns, axis=0)
    rest: np.ndarray = columns[:, size > 0] / size[size > 0]

    # Subtract the part along `basis` twice.
    # After the first subtraction, rounding errors along `basis` remain [Parlett].
    for _ in range(2):
        rest = rest - basis @ (basis.T @ rest)
        vectors, values, _ = thin_svd(rest)
        rest = vectors[:, values > _NOISE]
    return rest


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
        # With scale s and scatter A, the scaled scatter is diag(s) A diag(s). Multiply the columns
        # by s here, and the product by s in `result`.
        if scale is not None:
            columns = columns * scale[:, None]
        columns = np.ascontiguousarray(columns)
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
        """Add the rows of one block to the sums of the product.

        The product is that of the rows' scatter matrix and the columns given to the constructor.
        With several threads, the block is added later, before `result` returns.

        block: block of rows. Sparse rows may have fewer features than `mean`.
        weights: (rows,), weight of each row. None means 1 for each row.
        """
        # With one thread, there is no thread pool and only one partial product.
        if self._pool is None:
            self._parts[0].add(block, weights)
            return

        # The product is the sum of one partial product per thread. Blocks are added in turn.
        # Wait for the last block of this partial product, because it takes one block at a time.
        # `_running_additions` has the future of each partial product's last addition.
        turn = self._blocks % len(self._parts)
        self._blocks += 1
        self._wait_for_part(turn)
        self._running_additions[turn] = self._pool.submit(self._parts[turn].add, block, weights)

    def result(self) -> np.ndarray:
        """Return the product of the scatter matrix and the columns.

        The result is (features, r) for r columns.
        The product is over all blocks that were added so far.
        """
        # The scale multiplied the columns at the start. Here it multiplies the rows of the product.
        for turn in range(len(self._parts)):
            self._wait_for_part(turn)
        out = self._parts[0].result()
        for part in self._parts[1:]:
            out += part.result()
        return out if self._scale is None else out * self._scale[:, None]

    def _wait_for_part(self, part_number: int) -> None:
        """Wait for the thread that adds to partial sum `part_number`."""
        # Each partial sum gets one block at a time. Raises the thread's error, if adding failed.
        adding = self._running_additions[part_number]
        self._running_additions[part_number] = None
        if adding is not None:
            adding.result()


class _PartialScatterProduct:
    """Product of a scatter matrix and columns, over one thread's blocks.

    Two threads must not use one object at the same time.
    """

    def __init__(self, mean: np.ndarray, columns: np.ndarray) -> None:
        self._mean = mean
        self._columns = columns
        self._shift = mean @ self._columns
        self._out = np.zeros_like(self._columns)
        self._total = np.zeros(self._columns.shape[1])

    def add(self, block: Block, weights: np.ndarray | None) -> None:
        """Add the rows of one block to the sums of this part.

        The sums give the product of the rows' scatter matrix and the columns.

        block: block of rows, dense or CSR.
        weights: (rows,), weight of each row. None means 1 for each row.
        """
        if sp.issparse(block.X):
            self._add_sparse_rows(block.X, weights)
        else:
            self._add_dense_rows(block.X, weights)

    def result(self) -> np.ndarray:
        """Return the product (features, columns) over the blocks added here."""
        return self._out - np.outer(self._mean, self._total)

    def _add_sparse_rows(self, X: sp.csr_matrix, weights: np.ndarray | None) -> None:
        """Add CSR rows (rows, features) to the sums."""
        # weights: (rows,), weight of each row. None means 1 for each row.
        w = weights
        if weights is None:
            w = np.ones(X.shape[0])
        rows = map(readonly_view, (X.indptr, X.indices, X.data, w))
        _multiply_sparse_rows(*rows, self._columns, self._shift, self._out, self._total)

    def _add_dense_rows(self, X: np.ndarray, weights: np.ndarray | None) -> None:
        """Add dense rows X (rows, features) to the product `_out`.

        The product is Xcᵀ diag(w) Xc P, of the rows' scatter and the columns P (features, r) in
        `_columns`. Xc are the centred rows, and w their weights.

        weights: (rows,), weight of each row. None means 1 for each row.
        """
        # Centre at most about CHUNK values at a time, to save memory.
        step = max(1, CHUNK // max(1, X.shape[1]))
        for start in range(0, X.shape[0], step):
            centred = X[start : start + step] - self._mean
            z = centred @ self._columns
            if weights is not None:
                z *= weights[start : start + step, None]
            self._out += centred.T @ z


@compiled(fastmath={"reassoc", "contract", "nsz"})
def _multiply_sparse_rows(indptr, indices, data, weights, columns, shift, out, total):  # type: ignore[no-untyped-def]
    """Add sparse rows to two sums, from which the caller computes scatter times columns.

    Let x be a row, w its weight, and z = x @ columns − shift the centred row times the columns. The
    row adds w x zᵀ to `out` and w z to `total`. The product of the rows' scatter and the columns is
    `out` minus the outer product of the rows' mean and `total`.

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
            j = indices[e]
            v = np.float64(data[e])
            for c in range(r):
                z[c] += v * columns[j, c]

        # Add the row's weight times z to `total`.
        # Add the outer product of the row and the weighted z to `out`.
        for c in range(r):
            z[c] *= weights[i]
            total[c] += z[c]
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            v = np.float64(data[e])
            for c in range(r):
                out[j, c] += v * z[c]
