"""Block conjugate gradient: solve (Cxx + γI) W1 = XH for all columns together.

The matrix A = Cxx + γI is only available as a product. The state between products is the solution,
the orthonormal basis of the residual and the search directions, each (features, r) with r ≤ the
rank of the right-hand sides B = XH, and three (r, k) matrices. Data is read one time a step, and
the rest costs O(features · r²).

There is no preconditioner. On text Jacobi's does not help, and at γ = 0 it converges to an answer
that is not of minimum norm. Started from 0, this one stays in the range of the matrix, so its
answer is [mathematics §4].

The recurrence is Dubrulle's BCGrQ (*Retooling the method of block conjugate gradients*, ETNA 12,
2001) with a block that may shrink:

    [Q, C] = svd(B); P = Q; W = 0
    loop:
        T = A P;  a = (PᵀT)⁻¹;  s = a PᵀQ;  W += P s C
        [Q, z] = qr(Q − T s);  C = z C;  P = orth(Q − P a TᵀQ)

The residual Q C is stored in factors, so the block may lose rank (equal columns, a column that has
converged) without a division by zero. After each step C is rotated to its singular values, and
directions whose part of the residual is rounding are dropped. Directions are orthonormalised (Ji &
Li's breakdown-free form, BIT 57, 2017), so that a combination in the null space of A shows in PᵀT
and is dropped. P = Q + P zᵀ hides it when P has grown.

`solve_step` takes the product as an array. So the caller decides where rows come from, and may
stop, save the state and continue elsewhere.
"""

from typing import NamedTuple

import numpy as np

from stream_dr.checks import check_array_shapes, check_at_least, check_finite_arrays, require_matrix
from stream_dr.solve.singular import thin_svd
from stream_dr.solve.subspace import orthonormal
from stream_dr.solve.tall_qr import tall_qr
from stream_dr.statistics.protocol import nested_state

RANK_CUT = 1e-10
"""Share of the largest value below which values are dropped.

These are singular values of the right-hand sides, and eigenvalues.
"""

NOISE = 1e-14
"""Share of ‖B‖ below which a residual is rounding.

It is that of a direction. The caller may pass a larger one.
"""


@nested_state
class BlockSolve(NamedTuple):
    """A block solve between two steps.

    Attributes
    ----------
    solution : (features, r0) float64
        Solution for the compressed right-hand sides.
    directions : (features, r) float64
        The next step needs their product with the matrix. With r = 0 the solve has ended.
    basis : (features, r) float64
        Orthonormal. The residual is basis @ coefficients.
    coefficients : (r, r0) float64
    expand : (r0, k) float64
        From the compressed columns back to the original ones.
    size : float
        ‖B‖ (Frobenius).
    noise : float
        Part of `size` below which a residual is rounding.
    largest : float
        Largest eigenvalue of A seen in the directions.
    steps : int
        Number of steps so far.
    guessing : bool
        True if the directions span a guess and are no gradients yet.
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
        """Raise DamagedFile unless the arrays are a solve for `features` features.

        If None, for as many features as its directions have.
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
    """Return the solve of A W = right, from W = 0.

    `right` is compressed to its rank. Costs O(features · k²). If `right` is zero or has no
    columns, the solve has ended already.

    Parameters
    ----------
    right : (features, k)
    noise : float
        Relative size of the rounding in `right` (8·eps·max|x̄|/σ for sums about a mean). It
        matters if A is singular. Rounding outside A's range would be divided by almost nothing.
    guess : (features, p) or None
        Columns in whose span the first step searches W. Later gradients are conjugate.
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
    """Return the solve after one more step.

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


def current_solution(state: BlockSolve) -> np.ndarray:
    """Return W (features, k) for the original right-hand sides."""
    return state.solution @ state.expand


def solve_residual(state: BlockSolve) -> float:
    """Return ‖B − A W‖ / ‖B‖ by the recurrence, or 0 if B is zero."""
    return float(np.linalg.norm(state.coefficients) / state.size) if state.size else 0.0


def second_stage(first: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return loadings W (features, p) and eigenvalues Σ (p,).

    W = W1 U Σ^(−1/2). Σ, largest first, and U are those of D = W1ᵀ XH = U Σ Uᵀ [2S, Algorithm 2].
    Components with Σ_i ≤ 1e-10 Σ_1 are dropped [mathematics §3, rule 4]. Costs O(features · k²).

    Parameters
    ----------
    first : (features, k)
        W1. That of an unfinished solve will do, since D is positive semidefinite then, too.
    right : (features, k)
        XH.
    """
    small = first.T @ right
    values, vectors = np.linalg.eigh((small + small.T) / 2)
    values, vectors = values[::-1], vectors[:, ::-1]

    keep = values > RANK_CUT * max(float(values.max(initial=0.0)), 0.0)
    return first @ (vectors[:, keep] / np.sqrt(values[keep])), values[keep]


def largest_angle(before: np.ndarray, after: np.ndarray) -> float:
    """Return the largest principal angle between two spans.

    before, after: (features, p) matrices. Returns radians from 0 to π/2, and π/2 if their shapes
    differ. Costs O(features · p²).
    """
    if before.shape != after.shape:
        return float(np.pi / 2)
    if after.shape[1] == 0:
        return 0.0
    # From the sine, not the cosine, so that small angles keep their digits [Björck, Golub 1973].
    return float(np.arcsin(min(1.0, sine_of_largest_angle(tall_qr(before)[0], tall_qr(after)[0]))))


def sine_of_largest_angle(first: np.ndarray, second: np.ndarray) -> float:
    """Return the sine of the largest principal angle.

    first, second: (features, p), orthonormal bases of the spans.
    """
    rest = second - first @ (first.T @ second)
    return float(np.sqrt(max(0.0, float(np.linalg.eigvalsh(rest.T @ rest)[-1]))))


def _inverse_of_product(directions: np.ndarray, product: np.ndarray, largest: float) -> tuple[np.ndarray, float]:
    """Return (PᵀAP)⁻¹ (r, r) and the largest eigenvalue so far.

    The eigenvalue is that of A. The inverse is that on the range that A has in double precision. A
    combination s of directions with sᵀAs / sᵀs ≤ features·eps·largest lies in A's null space up to
    rounding (rule 1 of mathematics §3). Dividing by it would amplify the noise of the right-hand
    sides, so it is dropped.
    """
    gram = directions.T @ product
    values, vectors = np.linalg.eigh((gram + gram.T) / 2)
    largest = max(largest, float(values[-1]))
    keep = values > len(directions) * np.finfo(float).eps * largest
    return (vectors[:, keep] / values[keep]) @ vectors[:, keep].T, largest


def _new_residual(rest: np.ndarray, coefficients: np.ndarray, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the new residual rest @ coefficients as (basis, coefficients).

    The basis is orthonormal and has no directions of noise.
    """
    basis, turn = tall_qr(rest)
    vectors, values, right = thin_svd(turn @ coefficients)
    keep = values > noise
    return basis @ vectors[:, keep], values[keep, None] * right[keep]
