"""moments, the obvious way: every row held, every sum its definition, in extended precision."""

from typing import Any, NamedTuple

import numpy as np


class Moments(NamedTuple):
    """N, x̄ (d,), ȳ (k,), Cxx (d, d), Cxy (d, k), Cyy (k, k) and n_j (k,), float64."""

    weight: float
    mean: np.ndarray
    target_mean: np.ndarray
    scatter: np.ndarray
    cross: np.ndarray
    target_scatter: np.ndarray
    label_weights: np.ndarray


def moments(X: np.ndarray, Y: np.ndarray, weights: np.ndarray | None = None, decay: float = 1.0) -> Moments:
    """The moments of rows X (n, d), target columns Y (n, k), weights (n,); row i weighs w_i decay^(n−1−i)."""
    X, Y = np.asarray(X, dtype=np.longdouble), np.asarray(Y, dtype=np.longdouble)
    n = len(X)
    w = np.ones(n, dtype=np.longdouble) if weights is None else np.asarray(weights, dtype=np.longdouble)
    w = w * np.longdouble(decay) ** np.arange(n - 1, -1, -1)
    total = w.sum()
    mean = (w[:, None] * X).sum(axis=0) / total if total > 0 else np.zeros(X.shape[1])
    target_mean = (w[:, None] * Y).sum(axis=0) / total if total > 0 else np.zeros(Y.shape[1])
    scatter = np.zeros((X.shape[1], X.shape[1]), dtype=np.longdouble)
    cross = np.zeros((X.shape[1], Y.shape[1]), dtype=np.longdouble)
    target_scatter = np.zeros((Y.shape[1], Y.shape[1]), dtype=np.longdouble)
    for i in range(n):
        x, y = X[i] - mean, Y[i] - target_mean
        scatter += w[i] * np.outer(x, x)
        cross += w[i] * np.outer(x, y)
        target_scatter += w[i] * np.outer(y, y)
    n_j = (w[:, None] * (Y > 0)).sum(axis=0)
    values: tuple[Any, ...] = (mean, target_mean, scatter, cross, target_scatter, n_j)
    return Moments(float(total), *(np.asarray(v, dtype=np.float64) for v in values))


def indicator(label_rows: list[Any], labels: list[Any], zhou: bool = False) -> np.ndarray:
    """(n, k) indicator of one label or a list of labels a row; zhou: divided by √(number of labels of the row)."""
    out = np.zeros((len(label_rows), len(labels)))
    for i, row in enumerate(label_rows):
        own = row if isinstance(row, list | tuple | set) else [row]
        for label in own:
            out[i, labels.index(label)] = 1.0 / np.sqrt(len(own)) if zhou else 1.0
    return out
