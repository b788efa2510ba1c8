"""Scale of answers by looking at them: what variance the projected rows have, row by row."""

from typing import Any

import numpy as np


def variances(Z: np.ndarray, weights: Any = None) -> np.ndarray:
    """(components,) variance of projected rows Z (rows, components) about their mean, divisor Σ w."""
    w = np.ones(len(Z)) if weights is None else np.asarray(weights, dtype=float)
    mean = sum((wi * z for wi, z in zip(w, Z, strict=True)), np.zeros(Z.shape[1])) / w.sum()
    return sum((wi * (z - mean) ** 2 for wi, z in zip(w, Z, strict=True)), np.zeros(Z.shape[1])) / w.sum()


def within_variances(Z: np.ndarray, y: Any, weights: Any = None) -> np.ndarray:
    """(components,) variance of projected rows about the mean of their class, divisor Σ w."""
    y, w = np.asarray(y), np.ones(len(Z)) if weights is None else np.asarray(weights, dtype=float)
    out = np.zeros(Z.shape[1])
    for label in set(y.tolist()):
        own = (y == label) & (w > 0)
        if own.any():
            out += w[own].sum() * variances(Z[own], w[own])
    return out / w.sum()


def shrunk(X: np.ndarray, H: np.ndarray, s: float, trace: float) -> tuple[np.ndarray, np.ndarray]:
    """W (d, p) and λ (p,) of XᵀHHᵀX w = λ ((1 − s) Cxx + s trace/d I) w, X centred, by a dense generalised eigenproblem
    with Wᵀ(…)W = I."""
    from scipy.linalg import eigh

    Xc = X - X.mean(axis=0)
    d, xh = X.shape[1], Xc.T @ H
    values, vectors = eigh(xh @ xh.T, (1 - s) * (Xc.T @ Xc) + s * trace / d * np.eye(d))
    p = int(np.count_nonzero(values > 1e-10 * values[-1]))
    return vectors[:, ::-1][:, :p], values[::-1][:p]
