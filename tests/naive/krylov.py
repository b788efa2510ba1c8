"""The in-memory reference of refine: the two-stage method as the paper runs it, LSQR a column on the centred rows."""

from typing import Any

import numpy as np
from scipy.sparse.linalg import lsqr


def lsqr_two_stage(X: Any, right: np.ndarray, gamma: float) -> np.ndarray:
    """W (features, p) of [2S, Algorithm 2]; X (rows, features) centred, right (rows, k) is H, minimum norm at gamma = 0."""
    tight = {"atol": 1e-15, "btol": 1e-15, "conlim": 0.0, "iter_lim": 20_000}
    first = np.column_stack([lsqr(X, column, damp=np.sqrt(gamma), **tight)[0] for column in right.T])
    values, vectors = np.linalg.eigh(first.T @ (X.T @ right))
    keep = values > 1e-10 * values.max()
    return first @ (vectors[:, keep] / np.sqrt(values[keep]))


def principal_angle(a: np.ndarray, b: np.ndarray) -> float:
    """Largest principal angle in radians between the spans of two (features, p) matrices of full column rank."""
    assert a.shape == b.shape
    p, q = np.linalg.qr(a)[0], np.linalg.qr(b)[0]
    return float(np.arcsin(min(1.0, np.linalg.norm(q - p @ (p.T @ q), 2))))
