"""Block conjugate gradient: solve (Cxx + γI) W1 = XH for all columns together.

Cxx (features, features) is the scatter of the centred rows, γ a ridge, and XH (features, k) the
right-hand sides. The matrix A = Cxx + γI is never formed. The caller computes its product with the
current search directions, which reads the data once per step. Between two steps the state is the
solution, an orthonormal basis of the residual and the search directions, each (features, r), and
three small matrices of at most k rows and columns. r is at most the rank of B = XH. The rest of a
step costs O(features · r²).

There is no preconditioner. Jacobi's preconditioner does not help on text. At γ = 0 it would also
converge to a solution that is not of minimum norm. Without it, a solve that starts from 0 stays in
the range of A, and so converges to the minimum-norm solution [mathematics §4].

The method is Dubrulle's BCGrQ (*Retooling the method of block conjugate gradients*, ETNA 12,
2001), changed so that the number of directions may shrink:

    [Q, C] = svd(B); P = Q; W = 0
    loop:
        T = A P;  a = (PᵀT)⁻¹;  s = a PᵀQ;  W += P s C
        [Q, z] = qr(Q − T s);  C = z C;  P = orth(Q − P a TᵀQ)

P are the search directions, W is the solution, and the residual B − A W is stored as its factors Q
and C. Because of the factors, the residual may lose rank without a division by zero (for example,
if columns are equal or a column has converged). Q and C are then rotated to the singular vectors
of the residual, and directions whose singular value is only rounding error are dropped.

The search directions are orthonormalised (the breakdown-free form of Ji and Li, BIT 57, 2017). A
combination of directions in the null space of A then has a small eigenvalue in PᵀT and is dropped.
Dubrulle's own update P = Q + P zᵀ would hide such a combination once P has grown.

`solve_step` takes the product as an array. So the caller decides where the rows come from. The
caller may also stop, save the state and continue in another process.
"""

from typing import NamedTuple

import numpy as np

from stream_dr.checks import check_array_shapes, check_at_least, check_finite_arrays, require_matrix
from stream_dr.solve.singular import singular_values, thin_svd
from stream_dr.solve.subspace import orthonormal
from stream_dr.solve.tall_qr import tall_qr
from stream_dr.statistics.protocol import nested_state

RANK_CUT = 1e-10
"""Share of the largest value up to which a value counts as zero.

The values are singular values of the right-hand sides, or eigenvalues of components.
"""

NOISE = 1e-14
"""Share of the right-hand sides' norm ‖B‖ up to which a residual is rounding error.

A direction of the residual is dropped if its singular value is smaller. The caller of
`start_solve` may pass a larger share.
"""


@nested_state
class BlockSolve(NamedTuple):
    """State of a solve of A W = B between two steps.

    Attributes
    ----------
    solution : (features, r0) float64
        Solution for the right-hand sides compressed to their rank r0.
    directions : (features, r) float64
        Search directions. The next step needs the product of A with them. With r = 0 the solve has
        ended.
    basis : (features, r) float64
        Orthonormal basis of the residual. The residual is basis @ coefficients.
    coefficients : (r, r0) float64
        Coefficients of the residual in the basis.
    expand : (r0, k) float64
        Matrix that turns the compressed right-hand sides into the original ones.
    size : float
        Frobenius norm ‖B‖ of the right-hand sides.
    noise : float
        Share of `size` up to which a residual is rounding error.
    largest : float
        Largest eigenvalue of A that the directions have shown so far.
    steps : int
        Number of steps so far.
    guessing : bool
        True if the search directions span the caller's guess and are not yet gradients.
    """

    solution: np.ndarray
    directions: np.ndarray
    basis: np.ndarray
    coefficients: np.ndarray
    expand: np.ndarray
    size: float
    noise: float = NOISE
    largest: float = 0.0
    steps: int = 0
    guessing: bool = False

    def check(self, features: int | None = None) -> None:
        """Raise DamagedFile unless the arrays have the shapes of one solve.

        features: number of features, or None to take it from the directions.
        """
        features = len(self.directions) if features is None else features
        (r0, k), r = require_matrix(self, "expand"), require_matrix(self, "basis")[1]
        searched = require_matrix(self, "directions")[1]
        check_array_shapes(
            self, np.float64, solution=(features, r0), directions=(features, searched), basis=(features, r)
        )
        check_array_shapes(self, np.float64, coefficients=(r, r0), expand=(r0, k))
        check_finite_arrays(self, "solution", "directions", "basis", "coefficients", "expand")
        check_at_least(self, 0.0, "size", "noise", "largest", "steps")


def start_solve(right: np.ndarray, noise: float = NOISE, guess: np.ndarray | None = None) -> BlockSolve:
    """Return the state that starts the solve of A W = right from W = 0.

    `right` is compressed to its rank. If `right` is zero or has no columns, the solve has already
    ended. Costs O(features · k²).

    Parameters
    ----------
    right : (features, k)
        Right-hand sides B.
    noise : float
        Relative size of the rounding errors in `right` (8·eps·max|x̄|/σ for sums about a mean x̄
        of rows with standard deviation σ). It matters if A is singular, because rounding errors
        outside A's range would be divided by almost zero.
    guess : (features, p) or None
        Columns that span a guess of the solution. The first step searches W in this span. Later
        search directions are conjugate gradients.
    """
    vectors, values, expand = thin_svd(right)
    rank = int(np.count_nonzero(values > RANK_CUT * values[:1].sum()))
    basis = np.ascontiguousarray(vectors[:, :rank])

    guessing = guess is not None and rank > 0 and bool(np.any(guess))
    return BlockSolve(
        solution=np.zeros_like(basis),
        directions=orthonormal(guess, np.zeros((len(right), 0))) if guess is not None and guessing else basis,
        basis=basis,
        coefficients=np.diag(values[:rank]),
        expand=np.ascontiguousarray(expand[:rank]),
        size=float(np.linalg.norm(values[:rank])),
        noise=max(noise, NOISE),
        guessing=guessing,
    )


def solve_step(state: BlockSolve, product: np.ndarray) -> BlockSolve:
    """Return the state after one more step.

    product: A @ state.directions (features, r). Costs O(features · r²).
    """
    if state.directions.shape[1] == 0:
        return state

    inverse, largest = _inverse_of_product(state.directions, product, state.largest)
    step = inverse @ (state.directions.T @ state.basis)
    basis, coefficients = _new_residual(state.basis - product @ step, state.coefficients, state.noise * state.size)
    conjugate = basis if state.guessing else basis - state.directions @ (inverse @ (product.T @ basis))
    return state._replace(
        solution=state.solution + state.directions @ (step @ state.coefficients),
        directions=tall_qr(conjugate)[0],
        basis=basis,
        coefficients=coefficients,
        largest=largest,
        steps=state.steps + 1,
        guessing=False,
    )


def solve_residual(state: BlockSolve) -> float:
    """Return the relative residual ‖B − A W‖ / ‖B‖, or 0 if B is zero.

    B − A W is not computed again from A and W. Each step updates the residual in the state, and
    this residual is used.
    """
    return float(np.linalg.norm(state.coefficients) / state.size) if state.size else 0.0


def second_stage(
    first: np.ndarray, right: np.ndarray, expand: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return loadings W (features, p) and eigenvalues Σ (p,), largest first.

    This is the second stage of a two-stage method [2S, Algorithm 2]. The first stage solves (Cxx +
    γI) W1 = XH. Cxx (features, features) is the scatter of the centred rows, γ is a ridge, and XH
    is the product of the centred rows and the method's factor of the targets.

    U and Σ are the eigenvectors and eigenvalues of D = W1ᵀ XH = U Σ Uᵀ, and W = W1 U Σ^(−1/2).
    Components with Σ_i ≤ 1e-10 Σ_1 are dropped [mathematics §3, rule 4]. Costs O(features · k²).

    Parameters
    ----------
    first : (features, k), or (features, r0) with `expand`
        Solution W1 of the first stage. An approximate W1, from a solve that has not ended, may be
        passed. D is positive semidefinite for this W1, too.
    right : (features, k)
        Right-hand sides XH.
    expand : (r0, k) or None
        If given, the solution is W1 = first @ expand, as in a BlockSolve.
    """
    expand = np.eye(right.shape[1]) if expand is None else expand
    small = expand.T @ (first.T @ right)
    values, vectors = np.linalg.eigh((small + small.T) / 2)
    values, vectors = values[::-1], vectors[:, ::-1]

    keep = values > RANK_CUT * max(float(values.max(initial=0.0)), 0.0)
    return first @ (expand @ (vectors[:, keep] / np.sqrt(values[keep]))), values[keep]


def largest_angle(before: np.ndarray, after: np.ndarray) -> float:
    """Return the largest principal angle between two spans, in radians from 0 to π/2.

    before, after: (features, p), orthonormal bases of the spans. If their shapes differ, the angle
    is π/2. Costs O(features · p²).
    """
    if before.shape != after.shape:
        return float(np.pi / 2)
    if after.shape[1] == 0:
        return 0.0

    # The cosine of a small angle loses its digits [Björck, Golub 1973]. So the sine is used.
    rest = after - before @ (before.T @ after)
    sine = np.sqrt(max(0.0, float(np.linalg.eigvalsh(rest.T @ rest)[-1])))
    return float(np.arcsin(min(1.0, sine)))


def _inverse_of_product(directions: np.ndarray, product: np.ndarray, largest: float) -> tuple[np.ndarray, float]:
    """Return (PᵀAP)⁻¹ (r, r) and A's largest eigenvalue so far.

    P (features, r) are the orthonormal search directions. Let s be a combination of the directions
    with sᵀAs / sᵀs ≤ features·eps·largest. Up to rounding, s lies in the null space of A (rule 1
    of mathematics §3). The inverse leaves s out, because dividing by its eigenvalue would amplify
    the rounding errors of the right-hand sides.

    product: A P (features, r).
    largest: largest eigenvalue of A in earlier steps.
    """
    gram = directions.T @ product
    values, vectors = np.linalg.eigh((gram + gram.T) / 2)
    largest = max(largest, float(values[-1]))
    keep = values > len(directions) * np.finfo(float).eps * largest
    return (vectors[:, keep] / values[keep]) @ vectors[:, keep].T, largest


def _new_residual(rest: np.ndarray, coefficients: np.ndarray, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the residual rest @ coefficients as an orthonormal basis and new coefficients.

    The residual is (features, k). The basis (features, r) times the new coefficients (r, k) equals
    the residual. Directions whose singular value is at most `noise` are dropped.
    """
    basis, turn = tall_qr(rest)
    coefficients = turn @ coefficients
    if singular_values(coefficients).min(initial=np.inf) > noise:
        return basis, coefficients

    vectors, values, right = thin_svd(coefficients)
    keep = values > noise
    return basis @ vectors[:, keep], values[keep, None] * right[keep]
