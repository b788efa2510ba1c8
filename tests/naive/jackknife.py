"""The delete-m_j jackknife of components, by fitting an estimator again to the rows outside of each fold."""

from itertools import pairwise, permutations
from typing import Any

import numpy as np
from scipy.linalg import subspace_angles
from sklearn.base import clone

GROWTH = {"PCA": 1, "OPLS": 1, "SPCA": 2, "PLSDA": 2, "LDA": 0, "CCA": 0}


def refitted(estimator: Any, X: np.ndarray, y: Any, w: np.ndarray, keep: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Components (p, d) and eigenvalues (p,) of the kept rows, the ridge reduced as the weight is."""
    fitted = clone(estimator).set_params(gamma=estimator.gamma * w[keep].sum() / w.sum())
    fitted.fit(X[keep], y[keep], sample_weight=w[keep])
    return fitted.linear_projection().loadings.T, fitted.eigenvalues_


def scores(X: np.ndarray, w: np.ndarray, components: np.ndarray, diagonal: bool) -> np.ndarray:
    """Centred and weighted scores (rows, p), of length 1, so that cosines are products. Or the same by the diagonal."""
    centred = (X - np.average(X, axis=0, weights=w)) * np.sqrt(w)[:, None]
    Z = np.linalg.norm(centred, axis=0)[:, None] * components.T if diagonal else centred @ components.T
    return Z / np.linalg.norm(Z, axis=0)


def best_match(cosines: np.ndarray) -> tuple[int, ...]:
    """For each row of the cosines (p, q) its column, such that the absolute cosines add up to the most. p ≤ q."""
    p, q = cosines.shape
    return max(permutations(range(q), p), key=lambda at: sum(abs(cosines[i, j]) for i, j in enumerate(at)))


def standard(whole: np.ndarray, without: list[np.ndarray], weights: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """The estimate without bias and its standard error, as Busing, Meijer and van der Leeden write them."""
    n, K = sum(weights), len(weights)
    corrected = K * whole - sum((1 - m / n) * t for t, m in zip(without, weights, strict=True))
    total = np.zeros_like(whole)
    for t, m in zip(without, weights, strict=True):
        h = n / m
        pseudo = h * whole - (h - 1) * t
        total += (pseudo - corrected) ** 2 / (h - 1) / K
    return corrected, np.sqrt(total)


def spread(estimator: Any, X: np.ndarray, y: np.ndarray, w: np.ndarray, fold: np.ndarray) -> dict[str, np.ndarray]:
    """The fields of ComponentSpread. No solution may have fewer components than that of all rows."""
    folds = sorted(set(fold.tolist()))
    weights = [float(w[fold == f].sum()) for f in folds]
    n, K, g = sum(weights), len(folds), GROWTH[type(estimator).__name__]
    W, values = refitted(estimator, X, y, w, np.ones(len(X), dtype=bool))
    p = len(W)
    # SPCA stores only the diagonal of the rows' scatter.
    diagonal = type(estimator).__name__ == "SPCA"
    Z = scores(X, w, W, diagonal)
    thetas, loadings = [], []
    squares, planes = np.zeros((K, p)), np.zeros((K, p - 1))
    for k, f in enumerate(folds):
        Wf, values_f = refitted(estimator, X, y, w, fold != f)
        Zf = scores(X, w, Wf, diagonal)
        at = list(best_match(Z.T @ Zf))
        thetas.append(values_f[:p] / (n - weights[k]) ** g)
        cosines = (Z * Zf[:, at]).sum(axis=0)
        loadings.append(Wf[at] * np.sign(cosines)[:, None])
        squares[k] = 1 - cosines**2
        for i in range(p - 1):
            planes[k, i] = np.sin(subspace_angles(Z[:, i : i + 2], Zf[:, at[i : i + 2]]).max()) ** 2

    def angle(s: np.ndarray) -> np.ndarray:
        return np.degrees(np.arcsin(np.minimum(np.sqrt((K - 1) * s.mean(axis=0)), 1)))

    corrected, error = standard(values / n**g, thetas, weights)
    near = [abs(a - b) < 0.05 * max(abs(a), abs(b)) for a, b in pairwise(values)]
    return {
        "eigenvalues": corrected * n**g,
        "eigenvalues_std": error * n**g,
        "components_std": standard(W, loadings, weights)[1],
        "angles": angle(squares),
        "plane_angles": np.where(near, angle(planes), np.nan),
    }
