"""CCIPCA and incremental SKM, one row after the other, as MATH.md section 6 defines them. Slow and obvious."""

from typing import Any, NamedTuple

import numpy as np

EPS = np.finfo(np.float64).eps


class Recurrence(NamedTuple):
    """What a recurrence remembers. vectors: (live, d); mean: (d,) or (classes, d); counts: rows, or rows a class."""

    vectors: np.ndarray
    mean: np.ndarray
    counts: Any


def ccipca(X: np.ndarray, p: int, amnesic: float = 2.0, center: bool = True) -> Recurrence:
    """CCIPCA of rows X (rows, d), p components."""
    X = np.asarray(X, dtype=np.float64)
    mean = np.zeros(X.shape[1])
    vectors: list[np.ndarray] = []
    for n, x in enumerate(X, start=1):
        if center:
            mean = mean + (x - mean) / n
        u = first = x - mean
        ell = amnesic if n > amnesic + 1 else 0.0
        for i in range(p):
            if i == len(vectors):
                if starts(u, first, x):
                    vectors.append(u)
                break
            v = vectors[i]
            v = (n - 1 - ell) / n * v + (1 + ell) / n * (u @ v) / np.linalg.norm(v) * u
            u = u - (u @ v) / (v @ v) * v
            vectors[i] = v
    return Recurrence(np.array(vectors).reshape(-1, X.shape[1]), mean, len(X))


def iskm(X: np.ndarray, y: np.ndarray, p: int, a: float = 1.0, dense: bool = True) -> Recurrence:
    """Incremental SKM of rows X (rows, d) with classes y (rows,) in 0 … c − 1. `dense` rows are shifted by the first."""
    X = np.asarray(X, dtype=np.float64)
    c = int(y.max()) + 1 if len(y) else 0
    shift = X[0] if dense and len(X) else np.zeros(X.shape[1])
    means, counts = np.zeros((c, X.shape[1])), np.zeros(c)
    vectors: list[np.ndarray] = []
    for n, (row, label) in enumerate(zip(X, y, strict=True), start=1):
        x = row - shift
        counts[label] += 1
        means[label] += (x - means[label]) / counts[label]
        here = np.flatnonzero(counts)
        q = counts[here] / n - a * (here == label)
        u, m = x, means[here].copy()
        for i in range(p):
            if i == len(vectors):
                if starts(u, x, x):
                    vectors.append(u)
                break
            v = vectors[i]
            away = u - m
            v = (n - 1) / n * v + (q * (away @ v)) @ away / np.linalg.norm(v) / n
            u = u - (u @ v) / (v @ v) * v
            m = m - np.outer(m @ v / (v @ v), v)
            vectors[i] = v
    return Recurrence(np.array(vectors).reshape(-1, X.shape[1]), means + shift, counts)


def starts(u: np.ndarray, first: np.ndarray, x: np.ndarray) -> bool:
    """Whether a component that is not yet live takes the residual u of the row x whose first residual was `first`."""
    return bool(u @ u > 1e-10 * (first @ first) and np.linalg.norm(first) > 64 * EPS * np.linalg.norm(x))
