"""Block conjugate gradient: solve (Cxx + γI) W1 = XH.

All columns of XH are solved for together.

Symbols:

* Cxx (features, features) is the scatter of the centred rows, and γ is a ridge.
* A = Cxx + γI is the matrix of the linear system. A is never formed.
* B = XH (features, k) are the right-hand sides.
* W1, or W for short, is the solution (features, k).

In each step, the caller computes the product of A and the current search directions, which reads
the data once. The rest of a step costs O(features · r²), where r is the number of search
directions. r is at most the rank of B. Between two steps, the state has three arrays
(features, r): the solution, an orthonormal basis of the residual, and the search directions. The
state also has small matrices of at most k rows and columns.

There is no preconditioner. Jacobi's preconditioner does not make the solve faster on text. With
γ = 0, Jacobi's preconditioner would also lead to a solution that is not of minimum norm. Without a
preconditioner, a solve that starts from 0 stays in the range of A. So it converges to the
minimum-norm solution [mathematics §4].

The method is Dubrulle's BCGrQ (*Retooling the method of block conjugate gradients*, ETNA 12,
2001), changed so that the number of search directions may shrink:

    [Q, C] = svd(B); P = Q; W = 0
    loop:
        T = A P;  a = (PᵀT)⁻¹;  s = a PᵀQ;  W += P s C
        [Q, z] = qr(Q − T s);  C = z C;  P = orth(Q − P a TᵀQ)

P (features, r) are the search directions. The residual B − A W is stored as the product of Q
(features, r) and C (r, k). a, s and z are small matrices of one step.

The residual may lose rank, for example if two right-hand sides are equal or one has converged.
Because the residual is stored as two factors, the loss of rank causes no division by zero. If a
singular value of the residual is only rounding error, Q and C are rotated to the residual's
singular vectors, and the singular vector of the small value is dropped.

The search directions are orthonormalised (the breakdown-free form of Ji and Li, BIT 57, 2017). If
a combination of the directions lies in the null space of A, the matrix PᵀT has a small eigenvalue.
The combination is recognised by this eigenvalue and dropped. With Dubrulle's own update
P = Q + P zᵀ, the columns of P may be large, and the small eigenvalue would not be recognised.

`advance_linear_solve` takes the product A P as an array, so the caller decides where the rows come
from. The caller may also save the state between two steps and continue in another process.
"""

from typing import NamedTuple

import numpy as np

from stream_dr.checks import check_at_least, check_dtype_and_shapes, check_finite_arrays, shape_of_checked_matrix
from stream_dr.solve.spectral import LoadingsAndEigenvalues, singular_values, tall_qr, thin_svd
from stream_dr.solve.subspace import orthonormal_outside_basis
from stream_dr.statistics.protocol import register_nested_state

RANK_CUT = 1e-10
"""Relative size up to which a singular value or eigenvalue counts as zero.

Singular values of a linear system's right-hand sides are compared with the largest of them.
Eigenvalues of components are compared with the largest eigenvalue.
"""

NOISE = 1e-14
"""Size up to which a linear system's residual is rounding error.

The size is a share of the Frobenius norm of the right-hand sides. The caller of
`start_block_solve` may pass a larger number.
"""


@register_nested_state
class BlockSolve(NamedTuple):
    """State of a linear system's solution between two steps.

    The linear system is A W = B, with a symmetric matrix A (features, features), k right-hand
    sides B (features, k) and the solution W (features, k). It is solved by block conjugate
    gradient. The right-hand sides are first replaced by r0 ≤ k orthonormal columns with the same
    span.

    Attributes
    ----------
    solution : (features, r0) float64
        Solution so far for the r0 replaced right-hand sides.
    directions : (features, r) float64
        Search directions, along which the next step changes the solution. The caller computes the
        product of A and these directions for it. If r = 0, the solve has ended.
    basis : (features, r) float64
        First factor of the residual, with orthonormal columns. The residual (right-hand sides
        minus A times the solution) is basis @ coefficients.
    coefficients : (r, r0) float64
        Second factor of the residual.
    expand : (r0, k) float64
        Matrix by which the r0 replaced right-hand sides are multiplied to get B.
    size : float
        Frobenius norm ‖B‖ of the right-hand sides.
    noise : float
        Norm up to which the residual is rounding error, divided by `size`.
    largest : float
        Estimate of A's largest eigenvalue, from the search directions so far.
    steps : int
        Number of steps so far.
    guessing : bool
        True before the first step, if the search directions span the caller's guess of the
        solution. False otherwise.
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
        """Raise DamagedFile unless the arrays' shapes fit together.

        features: expected number of features. None means the number of rows of `directions`.
        """
        if features is None:
            features = len(self.directions)
        # k right-hand sides are replaced by r0 columns. Their residual has a basis of r columns.
        r0, k = shape_of_checked_matrix(self, "expand")
        r = shape_of_checked_matrix(self, "basis")[1]
        n_directions = shape_of_checked_matrix(self, "directions")[1]
        check_dtype_and_shapes(self, np.float64, solution=(features, r0), directions=(features, n_directions))
        check_dtype_and_shapes(self, np.float64, basis=(features, r), coefficients=(r, r0), expand=(r0, k))
        check_finite_arrays(self, "solution", "directions", "basis", "coefficients", "expand")
        check_at_least(self, 0.0, "size", "noise", "largest", "steps")


def start_block_solve(
    right_sides: np.ndarray, relative_noise: float = NOISE, guess_columns: np.ndarray | None = None
) -> BlockSolve:
    """Return the first state of a conjugate gradient solve.

    The linear system is A W = B. A (features, features) is its matrix, which only later steps
    need. B are the k right-hand sides `right_sides`. W (features, k) is the solution, which starts
    from 0. The columns of `right_sides` may be linearly dependent, so the system is solved for
    orthonormal columns with the same span. If `right_sides` is zero or has no columns, the solve
    has already ended.

    Parameters
    ----------
    right_sides : (features, k)
        Right-hand sides B.
    relative_noise : float
        Size of the rounding errors in `right_sides`, divided by the Frobenius norm of
        `right_sides`. If `right_sides` are sums over rows with mean x̄ and standard deviation σ,
        pass 8·eps·max|x̄|/σ. The number matters if A is singular, because rounding errors outside
        A's range would be divided by almost zero.
    guess_columns : (features, p) or None
        The p columns that span a guess of the solution. The first step searches for W in this
        span. Later search directions are conjugate gradients.
    """
    # Replace the right-hand sides by orthonormal columns of the same span, and solve for these.
    # Multiplied by `values` and `expand`, these columns are the right-hand sides again.
    # The largest singular value is the first, or 0 if there are no columns.
    vectors, values, expand = thin_svd(right_sides)
    rank = int(np.count_nonzero(values > RANK_CUT * values[:1].sum()))
    basis = np.ascontiguousarray(vectors[:, :rank])

    # Without a guess, the first step searches along the right-hand sides.
    # A guess of zeros has no direction, and right-hand sides of zeros need no step.
    directions = basis
    guessing = False
    if guess_columns is not None and rank > 0 and np.any(guess_columns):
        directions = orthonormal_outside_basis(guess_columns, np.zeros((len(basis), 0)))
        guessing = True
    return BlockSolve(
        solution=np.zeros_like(basis),
        directions=directions,
        basis=basis,
        coefficients=np.diag(values[:rank]),
        expand=np.ascontiguousarray(expand[:rank]),
        size=float(np.linalg.norm(values[:rank])),
        noise=max(relative_noise, NOISE),
        guessing=guessing,
    )


def advance_linear_solve(state: BlockSolve, matrix_times_directions: np.ndarray) -> BlockSolve:
    """Return the state after one more step of conjugate gradient.

    If the solve has ended, the state is returned unchanged. If the caller started the solve with a
    guess of the solution, the first step goes along this guess (`state.guessing` is true). The
    steps after it are those of conjugate gradient.

    matrix_times_directions: (features, r), the product A @ state.directions of r columns, where A
        is the matrix of the linear system.

    Costs O(features · r²).
    """
    if state.directions.shape[1] == 0:
        return state

    # The old residual (right-hand sides minus A times solution) is Q C, with Q = `state.basis` and
    # C = `state.coefficients`. With the search directions P, the solution changes by P step C.
    # step = (PᵀAP)⁻¹ PᵀQ (`inverse` is (PᵀAP)⁻¹) makes the new residual orthogonal to P.
    inverse, largest = _directions_pseudo_inverse(state.directions, matrix_times_directions, state.largest)
    step = inverse @ (state.directions.T @ state.basis)

    # The new residual is (Q − A P step) C. Its first factor has no name here, so that the array is
    # freed as soon as it is decomposed. A residual of at most the norm `noise` is rounding error.
    # `state.size` is the norm of the right-hand sides, and `state.noise` a share of it.
    noise = state.noise * state.size
    basis, coefficients = _orthonormalise_residual(
        state.basis - matrix_times_directions @ step, state.coefficients, noise
    )

    # The new search directions P' are made from the new residual's basis.
    # They are conjugate to the old directions (P'ᵀAP = 0), except if these were the caller's guess.
    conjugate = basis
    if not state.guessing:
        shares = inverse @ (matrix_times_directions.T @ basis)
        conjugate = basis - state.directions @ shares
    return state._replace(
        solution=state.solution + state.directions @ (step @ state.coefficients),
        directions=tall_qr(conjugate)[0],
        basis=basis,
        coefficients=coefficients,
        largest=largest,
        steps=state.steps + 1,
        guessing=False,
    )


def relative_solve_residual(state: BlockSolve) -> float:
    """Return the relative residual of a system's solution so far.

    For the linear system A W = B with the solution W, the result is ‖B − A W‖ / ‖B‖, or 0 if B is
    zero. The residual B − A W is part of the state.
    """
    if state.size:
        return float(np.linalg.norm(state.coefficients) / state.size)
    return 0.0


def second_stage_components(
    first_stage_solution: np.ndarray, right_sides: np.ndarray, expansion: np.ndarray | None = None
) -> LoadingsAndEigenvalues:
    """Return the loadings and eigenvalues of p components.

    The loadings are (features, p), and the eigenvalues (p,), largest first. A two-stage method
    first solves a linear system. Let W1 (features, k) be its solution, and B (features, k) its
    right-hand sides. This function, the second stage, computes the eigenvectors U (k, p) and
    eigenvalues of the small matrix W1ᵀ B. The loadings are W1 U, with each column divided by the
    square root of its eigenvalue.

    Components whose eigenvalue is at most 1e-10 of the largest are dropped, because their loadings
    may be only rounding errors.

    Parameters
    ----------
    first_stage_solution : (features, k), or (features, r0) with `expansion`
        Solution W1 of the linear system. It may be approximate, from a solve that has not ended.
    right_sides : (features, k)
        The k right-hand sides B of the linear system.
    expansion : (r0, k) or None
        If not None, W1 is the product `first_stage_solution` @ `expansion`. A BlockSolve stores
        its solution so.
    """
    if expansion is None:
        expansion = np.eye(right_sides.shape[1])
    # `small` is W1ᵀ B. It is symmetric up to rounding errors, so only its symmetric part is used.
    small = expansion.T @ (first_stage_solution.T @ right_sides)
    values, vectors = np.linalg.eigh((small + small.T) / 2)
    values = values[::-1]
    vectors = vectors[:, ::-1]

    keep = values > RANK_CUT * max(float(values.max(initial=0.0)), 0.0)
    loadings = first_stage_solution @ (expansion @ (vectors[:, keep] / np.sqrt(values[keep])))
    return LoadingsAndEigenvalues(loadings, values[keep])


def largest_principal_angle(old_basis: np.ndarray, new_basis: np.ndarray) -> float:
    """Return the largest principal angle of two column spans.

    The angle is from 0 to π/2 (radians). If the shapes of the two bases differ, the result is π/2.
    Costs O(features · p²) for bases of p vectors.

    old_basis: (features, p), orthonormal basis of the first space.
    new_basis: (features, p), orthonormal basis of the second space.
    """
    # Bases that cannot be compared count as entirely different.
    if old_basis.shape != new_basis.shape:
        return float(np.pi / 2)
    if new_basis.shape[1] == 0:
        return 0.0

    # Compute the angle from its sine: cosines of small angles are inexact [Björck, Golub 1973].
    # The sine is the largest singular value of the new basis's part outside the old space (`rest`).
    rest = new_basis - old_basis @ (old_basis.T @ new_basis)
    squared_sine = float(np.linalg.eigvalsh(rest.T @ rest)[-1])
    sine = np.sqrt(max(0.0, squared_sine))
    return float(np.arcsin(min(1.0, sine)))


def _directions_pseudo_inverse(
    directions: np.ndarray, matrix_times_directions: np.ndarray, largest_eigenvalue: float
) -> tuple[np.ndarray, float]:
    """Return the pseudo-inverse of PᵀAP and A's estimated largest eigenvalue.

    A (features, features) is the matrix of a linear system. P (features, r) are the directions
    along which its solution is searched. The pseudo-inverse is (r, r). An eigenvalue of PᵀAP
    counts as zero if it is at most features · eps · (A's estimated largest eigenvalue). It is left
    out, because division by an eigenvalue of about zero would amplify rounding errors.

    directions: P (features, r), orthonormal.
    matrix_times_directions: A P (features, r).
    largest_eigenvalue: estimate of A's largest eigenvalue from earlier steps.
    """
    # `gram` is PᵀAP. It is symmetric up to rounding errors, so only its symmetric part is used.
    gram = directions.T @ matrix_times_directions
    values, vectors = np.linalg.eigh((gram + gram.T) / 2)
    largest_eigenvalue = max(largest_eigenvalue, float(values[-1]))
    keep = values > len(directions) * np.finfo(float).eps * largest_eigenvalue
    vectors = vectors[:, keep]
    return (vectors / values[keep]) @ vectors.T, largest_eigenvalue


def _orthonormalise_residual(
    first_factor: np.ndarray, second_factor: np.ndarray, noise_norm: float
) -> tuple[np.ndarray, np.ndarray]:
    """Write the residual as an orthonormal basis times coefficients.

    The residual (features, k) of a linear system with k right-hand sides is the product of
    `first_factor` and `second_factor`. Returns a basis (features, r) with orthonormal columns
    and new coefficients (r, k), whose product is the residual. Parts of the residual whose
    singular value is at most `noise_norm` are dropped.

    first_factor: (features, r0), first factor of the residual, not orthonormal.
    second_factor: (r0, k), second factor of the residual.
    noise_norm: norm up to which a singular value is rounding error.
    """
    # If no singular value of the residual is rounding error, nothing is dropped.
    basis, triangular = tall_qr(first_factor)
    second_factor = triangular @ second_factor
    if singular_values(second_factor).min(initial=np.inf) > noise_norm:
        return basis, second_factor

    # Use the singular vectors of the residual (`basis` times `second_factor`) as the new basis.
    # Drop the singular vectors whose singular value is only rounding error.
    vectors, values, right = thin_svd(second_factor)
    keep = values > noise_norm
    return basis @ vectors[:, keep], values[keep, None] * right[keep]
