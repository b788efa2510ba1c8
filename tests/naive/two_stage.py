"""The generalised eigenproblems of the two-stage paper solved directly, from rows and with H written out.

`X` is (n, d) rows; the reference never forms Cxx: it takes the SVD of the centred rows, so its error is eps·cond(X).
"""

from typing import Any

import numpy as np

EPS = float(np.finfo(np.float64).eps)


def indicator(label_sets: list[Any]) -> tuple[np.ndarray, list[Any]]:
    """(n, k) of 0 and 1, and the labels in sorted order; a row is a label or a list of labels."""
    sets = [s if isinstance(s, list | tuple | set) else [s] for s in label_sets]
    labels = sorted({label for s in sets for label in s})
    return np.array([[float(label in s) for label in labels] for s in sets]).reshape(len(sets), len(labels)), labels


def lda_h(Y: np.ndarray) -> np.ndarray:
    """H (n, c) of LDA from the class indicator: columns divided by √n_j."""
    Y = Y[:, Y.sum(axis=0) > 0]
    return Y / np.sqrt(Y.sum(axis=0))


def cca_h(Y: np.ndarray) -> np.ndarray:
    """H (n, k) of CCA: Y centred times (YᵀY)^(−1/2), pseudo-inverse where Y centred is rank deficient."""
    Yc = Y - Y.mean(axis=0)
    U, s, Vt = np.linalg.svd(Yc, full_matrices=False)
    keep = s**2 > 1e-10 * s[0] ** 2
    return U[:, keep] @ Vt[keep]


def hsl_h(Y: np.ndarray, laplacian: str) -> np.ndarray:
    """H (n, k) with HHᵀ = I − L, the normalised Laplacian of the hypergraph whose edges are the labels.

    zhou: D_v^(−1/2) Y D_e^(−1/2), vertex degree = labels of the row, edge degree = rows of the label.
    clique: A = Y Yᵀ with its diagonal, degree = row sums of A. star: A = Y D_e⁻² Yᵀ, degree = row sums of Y D_e⁻¹.
    """
    Y = Y[:, Y.sum(axis=0) > 0]
    n_e = Y.sum(axis=0)
    if laplacian == "zhou":
        degree, H = Y.sum(axis=1), Y / np.sqrt(n_e)
    elif laplacian == "clique":
        degree, H = (Y @ Y.T).sum(axis=1), Y
    else:
        degree, H = (Y @ np.diag(n_e**-2.0) @ Y.T).sum(axis=1), Y / n_e
    scale = np.divide(1.0, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0)
    return H * scale[:, None]


def centred_svd(X: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """U, s, V of X centred, with the rank cut of mathematics §3 on s²."""
    U, s, Vt = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    keep = s**2 > X.shape[1] * EPS * s[0] ** 2
    return U[:, keep], s[keep], Vt[keep].T


def generalised(X: np.ndarray, H: np.ndarray, gamma: float) -> tuple[np.ndarray, np.ndarray, float]:
    """W (d, p), eigenvalues and cond(Cxx + γI) of (Xᵀ H Hᵀ X) w = λ (Cxx + γI) w, X centred, cut as mathematics §3."""
    return from_svd(*centred_svd(X), H, gamma)


def from_svd(
    U: np.ndarray, s: np.ndarray, V: np.ndarray, H: np.ndarray, gamma: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """The same from the SVD of X centred."""
    P, t, _ = np.linalg.svd((s / np.sqrt(s**2 + gamma))[:, None] * (U.T @ H), full_matrices=False)
    p = int(np.count_nonzero(t**2 > 1e-10 * t[0] ** 2))
    W = (V / np.sqrt(s**2 + gamma)) @ P[:, :p]
    return W, t[:p] ** 2, float((s[0] ** 2 + gamma) / (s[-1] ** 2 + gamma))


def distance(W0: np.ndarray, W: np.ndarray) -> float:
    """‖W0W0ᵀ − WWᵀ‖ / ‖W0W0ᵀ‖ (Frobenius)."""
    A = W0 @ W0.T
    return float(np.linalg.norm(A - W @ W.T) / np.linalg.norm(A))
