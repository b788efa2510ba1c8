"""CCIPCA and incremental SKM, one row after the other, as mathematics §6 defines them. Slow and obvious.

`long` computes in the longest float there is: at an offset of 1e6 the definition itself loses 1e-9 in float64.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

EPS = np.finfo(np.float64).eps


class Recurrence(NamedTuple):
    """What a recurrence remembers. vectors: (live, d); mean: (d,) or (classes, d); counts: rows, or rows a class."""

    vectors: np.ndarray
    mean: np.ndarray
    counts: Any


def ccipca(X: np.ndarray, p: int, amnesic: float = 2.0, center: bool = True, long: bool = False) -> Recurrence:
    """CCIPCA of rows X (rows, d), p components."""
    X = np.asarray(X, dtype=np.longdouble if long else np.float64)
    mean = np.zeros_like(X, shape=X.shape[1])
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
            v = (n - 1 - ell) / n * v + (1 + ell) / n * (u @ v) / length(v) * u
            u = u - (u @ v) / (v @ v) * v
            vectors[i] = v
    return Recurrence(np.array(vectors).reshape(-1, X.shape[1]), mean, len(X))


def iskm(
    X: np.ndarray, y: np.ndarray, p: int, a: float = 1.0, dense: bool = True, long: bool = False, amnesic: float = 1.0
) -> Recurrence:
    """Incremental SKM of rows X (rows, d) with classes y (rows,) in 0 … c − 1. `dense` rows are shifted by the first.

    A vector that becomes exactly zero has no direction: the row ends there and it is no component any more.
    """
    X = np.asarray(X, dtype=np.longdouble if long else np.float64)
    c = int(y.max()) + 1 if len(y) else 0
    shift = X[0] if dense and len(X) else np.zeros_like(X, shape=X.shape[1])
    means, counts = np.zeros_like(X, shape=(c, X.shape[1])), np.zeros_like(X, shape=c)
    vectors: list[np.ndarray] = []
    for n, (row, label) in enumerate(zip(X, y, strict=True), start=1):
        x = row - shift
        counts[label] += 1
        means[label] += (x - means[label]) / counts[label]
        here = np.flatnonzero(counts)
        q = counts[here] / n - a * (here == label)
        ell = amnesic if n > amnesic + 1 else 0.0
        u, m = x, means[here].copy()
        for i in range(p):
            if i == len(vectors):
                if starts(u, x, x):
                    vectors.append(u)
                break
            v, away = vectors[i], u - m
            v = vectors[i] = (n - 1 - ell) * v / n + (1 + ell) * (q * (away @ v)) @ away / length(v) / n
            if not v @ v > 0:
                break
            u = u - (u @ v) / (v @ v) * v
            m = m - np.outer(m @ v / (v @ v), v)
        vectors = [v for v in vectors if v @ v > 0]
    return Recurrence(np.array(vectors).reshape(-1, X.shape[1]), means + shift, counts)


def starts(u: np.ndarray, first: np.ndarray, x: np.ndarray) -> bool:
    """Whether a component that is not yet live takes the residual u of the row x whose first residual was `first`."""
    return bool(u @ u > 1e-10 * (first @ first) and length(first) > 64 * EPS * length(x))


def length(v: np.ndarray) -> Any:
    """‖v‖ in v's own precision."""
    return np.sqrt(v @ v)


def classes(seed: int = 0, n: int = 300, d: int = 8, k: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Rows (n, d) of k classes with means apart, features of different spread, and the classes (n,)."""
    random = np.random.default_rng(seed)
    y = random.integers(0, k, n)
    y[:k] = np.arange(k)
    return random.normal(size=(n, d)) * np.linspace(2.0, 0.5, d) + 2.0 * random.normal(size=(k, d))[y], y


def hostile(seed: int = 0) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """(name, rows, classes) of streams that broke earlier forms of the recurrences."""
    random = np.random.default_rng(seed)
    X, y = classes(seed)
    yield "plain", X, y
    yield "zero rows", X * (random.random(len(X)) > 0.3)[:, None], y
    yield "first row zero", np.vstack([np.zeros_like(X[:1]), X[1:]]), y
    yield "first rows equal", np.vstack([np.tile(X[:1], (50, 1)), X]), np.concatenate([np.full(50, y[0]), y])
    yield "equal rows", np.tile(X[:1], (100, 1)), np.zeros(100, dtype=int)
    yield "two values", X[np.arange(300) % 2], np.arange(300) % 2
    yield "one row", X[:1], y[:1]
    yield "one class", X, np.zeros(len(X), dtype=int)
    yield "late class", X, np.where(np.arange(len(X)) < 200, np.minimum(y, 1), y)
    yield "fewer rows than components", X[:4], y[:4]
    yield "fewer features than components", X[:, :2], y
    yield "one feature", X[:, :1], y
    yield "rank one", random.normal(size=(300, 1)) * X[:1], y
    yield "columns twice", np.hstack([X, X]), y
    yield "scale 1e-8", X * 1e-8, y
    yield "scale 1e8", X * 1e8, y
    yield "offset 1e6", X + 1e6, y
    yield "offsets 1e6", X + 1e6 * random.normal(size=8), y
    yield "float32", X.astype(np.float32), y
    yield "small integers", random.integers(0, 3, (300, 8)).astype(float), y
