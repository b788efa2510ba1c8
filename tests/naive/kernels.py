"""The exact kernel methods, with (n, n) matrices: what estimators behind random Fourier features converge to."""

import numpy as np
from scipy.special import gamma as gamma_function
from scipy.special import kv


def rbf(A, B, gamma):
    """exp(−γ|a − b|²), (rows of A, rows of B)."""
    return np.array([[np.exp(-gamma * ((a - b) ** 2).sum()) for b in B] for a in A])


def laplace(A, B, gamma):
    """exp(−γ|a − b|₁)."""
    return np.array([[np.exp(-gamma * np.abs(a - b).sum()) for b in B] for a in A])


def matern(A, B, gamma, nu):
    """2^(1−ν)/Γ(ν) s^ν K_ν(s) with s = √(4νγ)|a − b|; exp(−γ|a − b|²) as ν → ∞."""
    s = np.array([[np.sqrt(4 * nu * gamma * ((a - b) ** 2).sum()) for b in B] for a in A])
    with np.errstate(invalid="ignore"):
        return np.where(s > 0, 2 ** (1 - nu) / gamma_function(nu) * s**nu * kv(nu, s), 1.0)


def centred(K, new=None):
    """K (n, n), or new (m, n) kernel values of other rows with the n, centred on the n rows' mean in feature space."""
    column = K.mean(axis=0)
    given = K if new is None else new
    return given - column - given.mean(axis=1)[:, None] + K.mean()


def indicator(y):
    """(n, classes), labels in sorted order."""
    return (np.asarray(y)[:, None] == np.unique(y)).astype(float)


def kernel_pca(K, new, p):
    """Projections (m, p) of new rows on unit-length principal directions; eigenvalues of the summed scatter."""
    values, vectors = np.linalg.eigh(centred(K))
    values, vectors = values[::-1][:p], vectors[:, ::-1][:, :p]
    return centred(K, new) @ vectors / np.sqrt(values), values


def kernel_spca(K, new, Y, p):
    """[SRP eq. 5]: left singular vectors of Σ (φ(x) − mean)(y − mean)ᵀ, as combinations of the rows."""
    Yc = Y - Y.mean(axis=0)
    values, vectors = np.linalg.eigh(Yc.T @ centred(K) @ Yc)
    values, vectors = values[::-1][:p], vectors[:, ::-1][:, :p]
    return centred(K, new) @ Yc @ vectors / np.sqrt(values), values


def kernel_srp(K, new, Y, R):
    """[SRP eq. 14 with a kernel]: K(new, rows) H Y R, rows not centred."""
    return new @ (Y - Y.mean(axis=0)) @ R


def kernel_lda(K, new, y, gamma):
    """Two-stage LDA [2S, Algorithm 2] in feature space (remark 3), classes − 1 components; and its eigenvalues."""
    Y = indicator(y)
    E = (Y - Y.mean(axis=0)) / np.sqrt(Y.sum(axis=0))
    Kc = centred(K)
    solved = np.linalg.solve(Kc + gamma * np.eye(len(K)), E)
    values, vectors = np.linalg.eigh(solved.T @ Kc @ E)
    p = Y.shape[1] - 1
    values, vectors = values[::-1][:p], vectors[:, ::-1][:, :p]
    return centred(K, new) @ solved @ vectors / np.sqrt(values), values
