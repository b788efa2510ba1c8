"""The two-stage paper's methods on rows in memory: the direct approach, the two stages by SVD and by LSQR, and ours.

H (n, k) is the method's, centred; W (d, p) solves (XHHᵀXᵀ) w = λ (XXᵀ + γI) w, WᵀXXᵀW + γWᵀW = I.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cholesky, qr, solve_triangular
from scipy.sparse import issparse
from scipy.sparse.linalg import LinearOperator, aslinearoperator, eigsh, lsqr

from stream_dr import CCA, HSL, LDA, OPLS
from stream_dr.solve.conjugate_gradient import second_stage_components
from tests.naive import two_stage as naive

SVD = tuple[np.ndarray, np.ndarray, np.ndarray]

MULTILABEL = ("CCA", "OPLS", "HSL clique", "HSL star")

H_OF: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "LDA": naive.lda_h,
    "CCA": naive.cca_h,
    "OPLS": np.asarray,
    "HSL clique": lambda Y: naive.hsl_h(Y, "clique"),
    "HSL star": lambda Y: naive.hsl_h(Y, "star"),
}


def right(method: str, Y: np.ndarray) -> np.ndarray:
    """H (n, k) of a method, centred, from Y (n, k) of 0 and 1."""
    H = H_OF[method](Y)
    return np.asarray(H - H.mean(axis=0))


def ours(method: str, gamma: float = 0.0, **parameters: Any) -> Any:
    """The estimator, its answers of the paper's length."""
    if method.startswith("HSL"):
        return HSL(method.removeprefix("HSL "), gamma=gamma, scaling="source", **parameters)
    return {"LDA": LDA, "CCA": CCA, "OPLS": OPLS}[method](gamma=gamma, scaling="source", **parameters)


def targets(method: str, Y: np.ndarray) -> np.ndarray:
    """Y as the estimator takes it: a class a row for LDA."""
    return Y.argmax(axis=1) if method == "LDA" else Y.astype(int)


def centred(X: Any) -> LinearOperator:
    """X centred (n, d), as products; sparse rows stay sparse."""
    if not issparse(X):
        return aslinearoperator(X - X.mean(axis=0))
    mean = np.asarray(X.mean(axis=0)).ravel()
    return LinearOperator(
        X.shape,
        dtype=float,
        matvec=lambda v: X @ v.ravel() - mean @ v.ravel(),
        rmatvec=lambda u: X.T @ u.ravel() - mean * u.sum(),
        rmatmat=lambda U: X.T @ U - np.outer(mean, U.sum(axis=0)),
    )


def direct(svd: SVD, H: np.ndarray, gamma: float) -> np.ndarray:
    """W0 of the eigenproblem itself, from naive.centred_svd of the rows."""
    return naive.from_svd(*svd, H, gamma)[0]


class Coordinates(NamedTuple):
    """Centred rows (n, r) in an orthonormal basis (d, r) of their span."""

    rows: np.ndarray
    basis: np.ndarray


def coordinates(X: np.ndarray) -> Coordinates:
    """Return the centred rows in a basis of their span, by QR with column pivoting.

    The rank is cut at the square root of d·eps, as naive.centred_svd does.
    """
    rows = X - X.mean(axis=0)
    basis, R, _ = qr(rows.T, mode="economic", pivoting=True, check_finite=False)
    diagonal = np.abs(np.diagonal(R))
    basis = basis[:, diagonal**2 > X.shape[1] * naive.EPS * diagonal[0] ** 2]
    return Coordinates(rows @ basis, basis)


def factors(given: Coordinates, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """Return Q (n, r) and R (r, r) of [rows; √γ I] = QR, of Q the part of the rows."""
    n, r = given.rows.shape
    Q, R = np.linalg.qr(np.vstack([given.rows, np.sqrt(gamma) * np.eye(r)]))
    return Q[:n], R


def direct_by_qr(given: Coordinates, factored: tuple[np.ndarray, np.ndarray], H: np.ndarray) -> np.ndarray:
    """Return W0 of the eigenproblem by a QR of the rows, without their SVD.

    XXᵀ + γI = RᵀR, so the problem is that of the SVD of QᵀH.
    """
    Q, R = factored
    P, t, _ = np.linalg.svd(Q.T @ H, full_matrices=False)
    p = int(np.count_nonzero(t**2 > 1e-10 * t[0] ** 2))
    return given.basis @ np.asarray(solve_triangular(R, P[:, :p]))


def by_svd(svd: SVD, H: np.ndarray, gamma: float) -> np.ndarray:
    """Algorithm 2 with W1 by [2S eq. 28] (γ = 0: Algorithm 1 with eq. 15)."""
    U, s, V = svd
    XH = V @ (s[:, None] * (U.T @ H))
    return second_stage_components((V * (s / (s**2 + gamma))) @ (U.T @ H), XH)[0]


def by_lsqr(X: Any, H: np.ndarray, gamma: float, tol: float, most: int = 20_000) -> tuple[np.ndarray, int]:
    """Algorithm 2 with W1 by LSQR, a column after the other, and the most iterations that one took."""
    rows = centred(X)
    solved = [lsqr(rows, h, damp=np.sqrt(gamma), atol=tol, btol=tol, conlim=0.0, iter_lim=most) for h in H.T]
    return second_stage_components(np.column_stack([s[0] for s in solved]), rows.rmatmat(H))[0], max(
        s[2] for s in solved
    )


def by_lanczos(X: Any, H: np.ndarray, gamma: float) -> np.ndarray:
    """W0 as [2S §5.3] times the direct approach, γ > 0, rank of H below d: XXᵀ + γI = LLᵀ, Lanczos on L⁻¹XHHᵀXᵀL⁻ᵀ."""
    rows, d = centred(X), X.shape[1]
    mean = np.asarray(X.mean(axis=0)).ravel()
    scatter = np.asarray((X.T @ X).toarray() if issparse(X) else X.T @ X)
    scatter -= len(H) * np.outer(mean, mean)
    scatter[np.diag_indices(d)] += gamma
    L = cholesky(scatter, lower=True, overwrite_a=True, check_finite=False)

    def product(v: np.ndarray) -> np.ndarray:
        u = H @ (H.T @ rows.matvec(solve_triangular(L, v.ravel(), lower=True, trans="T", check_finite=False)))
        return np.asarray(solve_triangular(L, rows.rmatvec(u), lower=True, check_finite=False))

    p = np.linalg.matrix_rank(H)
    vectors = eigsh(LinearOperator((d, d), matvec=product, dtype=float), k=p, which="LA", v0=np.ones(d))[1]
    return np.asarray(solve_triangular(L, vectors, lower=True, trans="T"))


def difference(W0: np.ndarray, W: np.ndarray) -> tuple[float, float]:
    """‖W0W0ᵀ − WWᵀ‖₂, as [2S] table 2 has it, and its ratio to ‖W0W0ᵀ‖₂; no (d, d) matrix is formed."""
    R = np.linalg.qr(np.hstack([W0, W]), mode="r")
    signs = np.repeat([1.0, -1.0], [W0.shape[1], W.shape[1]])
    norm = float(np.linalg.norm((R * signs) @ R.T, 2))
    return norm, norm / float(np.linalg.norm(W0, 2)) ** 2
