"""The matrices whose eigenvectors the closed-form estimators give, written out from their definitions, row by row."""

from typing import Any

import numpy as np


def class_means(X: np.ndarray, y: Any) -> dict[Any, np.ndarray]:
    """Mean (d,) of each class."""
    y = np.asarray(y)
    return {label: X[y == label].mean(axis=0) for label in sorted(set(y.tolist()))}


def between(X: np.ndarray, y: Any) -> np.ndarray:
    """Sb = Σ_j (n_j/N)(m_j − x̄)(m_j − x̄)ᵀ."""
    y, mean = np.asarray(y), X.mean(axis=0)
    return sum(np.mean(y == label) * np.outer(m - mean, m - mean) for label, m in class_means(X, y).items())


def within(X: np.ndarray, y: Any) -> np.ndarray:
    """Sw = 1/N Σ_i (x_i − m_{y_i})(x_i − m_{y_i})ᵀ."""
    means, S = class_means(X, y), np.zeros((X.shape[1], X.shape[1]))
    for x, label in zip(X, np.asarray(y).tolist(), strict=True):
        S += np.outer(x - means[label], x - means[label]) / len(X)
    return S


def skm(X: np.ndarray, y: Any, a: float) -> np.ndarray:
    """S_c = E Σ_j q(l_i, j)(u_i − m_j)(u_i − m_j)ᵀ, q = −(a − p_j) for the row's own class, p_j else [SKM eq. 16, 17]."""
    y = np.asarray(y)
    S = np.zeros((X.shape[1], X.shape[1]))
    for x, own in zip(X, y.tolist(), strict=True):
        for label, m in class_means(X, y).items():
            p = float(np.mean(y == label))
            S += (-(a - p) if label == own else p) * np.outer(x - m, x - m) / len(X)
    return S


def wmv(X: np.ndarray, y: Any, alpha: float, beta: float) -> np.ndarray:
    """Xᵀ L X, L = D − C, C_ij = α for rows of one class and β for rows of two [WMV]."""
    y = np.asarray(y)
    return laplacian(X, np.where(y[:, None] == y[None, :], alpha, beta))


def laplacian(X: np.ndarray, C: np.ndarray) -> np.ndarray:
    """Xᵀ L X, L = D − C, with a weight C_ij for every pair of rows [WMV]."""
    return X.T @ (np.diag(C.sum(axis=1)) - C) @ X


def spca(X: np.ndarray, K: np.ndarray) -> np.ndarray:
    """Xᵀ H K H X with the kernel K (n, n) on targets, H the centring matrix [SRP §2]."""
    H = np.eye(len(X)) - 1.0 / len(X)
    return X.T @ H @ K @ H @ X


def top(matrix: np.ndarray, p: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and eigenvectors by algebraic value."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return values[::-1][:p], vectors[:, ::-1][:, :p]
