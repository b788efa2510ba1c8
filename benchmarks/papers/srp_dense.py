"""The SRP paper's methods as it writes them, with (n, n) matrices; rows are samples here.

Each gives the embedding (n, k) of the training rows X with labels y, and (m, k) of held-out rows T. The label kernel is
the delta kernel, or the paper's random Fourier features of a Gaussian kernel of width 1e-10 on the labels' numbers.
Centring is a subtraction, so that no product with the centring matrix stands in the times.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh
from scipy.sparse.linalg import eigsh
from sklearn.metrics.pairwise import euclidean_distances

Embedding = tuple[np.ndarray, np.ndarray]


class Rows(NamedTuple):
    """X (n, d), y (n,): training rows and labels. T (m, d), truth (m,): those held out."""

    X: np.ndarray
    y: np.ndarray
    T: np.ndarray
    truth: np.ndarray


def rbf(A: np.ndarray, B: np.ndarray, gamma: float) -> np.ndarray:
    """exp(−γ|a − b|²), (rows of A, rows of B)."""
    return np.exp(-gamma * euclidean_distances(A, B, squared=True))


def delta(y: np.ndarray) -> np.ndarray:
    """L (n, n): 1 where labels are equal."""
    return (y[:, None] == y).astype(float)


def label_features(y: np.ndarray, k: int, seed: int) -> np.ndarray:
    """Ψᵀ (n, k): √(2/k) cos(ω y + b), ω ~ N(0, 1e20) on the labels' numbers [SRP §3]."""
    rng, codes = np.random.default_rng(seed), np.unique(y, return_inverse=True)[1]
    return np.sqrt(2 / k) * np.cos(codes[:, None] * rng.normal(size=k) * 1e10 + rng.uniform(0, 2 * np.pi, k))


def row_features(A: np.ndarray, gamma: float, seed: int, features: int = 1000) -> np.ndarray:
    """(rows, features) random Fourier features of the RBF kernel."""
    rng = np.random.default_rng(seed)
    frequencies = rng.normal(size=(A.shape[1], features)) * np.sqrt(2 * gamma)
    return np.sqrt(2 / features) * np.cos(A @ frequencies + rng.uniform(0, 2 * np.pi, features))


def centred(A: np.ndarray) -> np.ndarray:
    """H A: less the mean of the rows."""
    return A - A.mean(axis=0)


def spca(rows: Rows, k: int) -> Embedding:
    """The top k eigenvectors of X H L H Xᵀ, null space and all [SRP eq. 4]."""
    X = centred(rows.X)
    U = np.linalg.eigh(X.T @ delta(rows.y) @ X)[1][:, ::-1][:, :k]
    return rows.X @ U, rows.T @ U


def srp(rows: Rows, k: int, seed: int) -> Embedding:
    """U = X H Ψᵀ [SRP eq. 13]."""
    U = centred(rows.X).T @ label_features(rows.y, k, seed)
    return rows.X @ U, rows.T @ U


def kspca(rows: Rows, k: int, gamma: float) -> Embedding:
    """K H L H K β = λ K β, the top k, null space and all [SRP eq. 5]; a ridge of 1e-10 lets K be inverted."""
    K = rbf(rows.X, rows.X, gamma)
    image = centred(K)
    n = len(K)
    Q = image.T @ delta(rows.y) @ image
    beta = eigh(Q, K + 1e-10 * n * np.eye(n), subset_by_index=[max(n - k, 0), n - 1])[1][:, ::-1]
    return K @ beta, rbf(rows.T, rows.X, gamma) @ beta


def kspca_of_classes(rows: Rows, k: int, gamma: float) -> Embedding:
    """The same without null space, from L = Y Yᵀ, Y the class indicator: the eigenproblem of Yᵀ H K H Y is (c, c)."""
    K, Y = rbf(rows.X, rows.X, gamma), centred((rows.y[:, None] == np.unique(rows.y)).astype(float))
    values, vectors = np.linalg.eigh(Y.T @ K @ Y)
    beta = Y @ (vectors / np.sqrt(np.maximum(values, 1e-12 * values[-1])))[:, ::-1][:, : min(k, Y.shape[1] - 1)]
    return K @ beta, rbf(rows.T, rows.X, gamma) @ beta


def ksrp(rows: Rows, k: int, gamma: float, seed: int) -> Embedding:
    """Ψ H K, with the kernel itself [SRP §2.2]."""
    beta = centred(label_features(rows.y, k, seed))
    return rbf(rows.X, rows.X, gamma) @ beta, rbf(rows.T, rows.X, gamma) @ beta


def ksrp_fourier(rows: Rows, k: int, gamma: float, seed: int) -> Embedding:
    """U = Ψ_X H Ψ_Yᵀ, Ψ_X 1,000 random Fourier features of the RBF kernel [SRP table 1]."""
    mapped = row_features(rows.X, gamma, seed)
    U = centred(mapped).T @ label_features(rows.y, k, seed)
    return mapped @ U, row_features(rows.T, gamma, seed) @ U


def printed(name: str, rows: Rows, k: int, gamma: float) -> np.ndarray:
    """U of table 1, letter by letter: H formed, and KSPCA's the eigenvectors of H L H K, which is not symmetric."""
    n = len(rows.y)
    H = np.eye(n) - 1.0 / n
    if name == "SPCA":
        return np.asarray(np.linalg.eigh(rows.X.T @ H @ delta(rows.y) @ H @ rows.X)[1][:, : -k - 1 : -1])
    if name == "KSPCA":
        return np.asarray(np.linalg.eig(H @ delta(rows.y) @ H @ rbf(rows.X, rows.X, gamma))[1][:, :k].real)
    left = rows.X if name == "SRP" else row_features(rows.X, gamma, 0)
    return np.asarray(left.T @ H @ label_features(rows.y, k, 0))


def kernel_pca(rows: Rows, k: int, gamma: float) -> Embedding:
    """Eigenvectors of H K H."""
    K = rbf(rows.X, rows.X, gamma)
    values, vectors = eigsh(centred(centred(K).T), k, v0=np.ones(len(K)) + np.arange(len(K)) / len(K))
    beta = centred(vectors / np.sqrt(values))[:, ::-1]
    return K @ beta, rbf(rows.T, rows.X, gamma) @ beta
