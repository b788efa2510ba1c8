"""Rows and comparisons shared by the tests of the closed-form estimators."""

from typing import Any

import numpy as np

CASES = ["plain", "few rows", "duplicated columns", "offset", "constant column", "unequal classes"]


def rows(case: str = "plain", seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """(X, y): three classes; the hostile kinds of rows the closed forms must stand."""
    random = np.random.default_rng(seed)
    n = 8 if case == "few rows" else 90
    y = np.arange(n) % 3 if case != "unequal classes" else np.where(np.arange(n) < 4, np.arange(n) % 2, 2)
    X = random.normal(size=(n, 10)) * np.linspace(0.5, 3.0, 10) + random.normal(size=(3, 10))[y] * 2.0
    if case == "duplicated columns":
        X = X[:, [*range(10), 0, 1]]
    elif case == "offset":
        X = X + 1e6
    elif case == "constant column":
        X[:, 4] = 1e5 / 3
    return X, y


def learn(estimator: Any, X: np.ndarray, y: Any = None, batches: int = 3, **more: Any) -> Any:
    """The estimator after so many batches, the first one short."""
    for at in np.split(np.arange(len(X)), np.linspace(2, len(X), batches, dtype=int)[:-1]):
        estimator.partial_fit(X[at], None if y is None else np.asarray(y)[at], **more)
    return estimator


def same_span(A: np.ndarray, B: np.ndarray, tolerance: float = 1e-8) -> None:
    """Orthonormal columns of A and B (d, p) span the same space."""
    assert A.shape == B.shape
    assert np.linalg.norm(A @ A.T - B @ B.T) <= tolerance * max(1.0, np.sqrt(A.shape[1]))


def same_eigenpairs(estimator: Any, values: np.ndarray, vectors: np.ndarray, tolerance: float = 1e-8) -> None:
    """Components and eigenvalues are these, up to sign."""
    p = estimator.rank_
    scale = float(np.abs(values).max())
    np.testing.assert_allclose(estimator.eigenvalues_, values[:p], rtol=tolerance, atol=tolerance * scale)
    cosines = np.abs((estimator.components_.T * vectors[:, :p]).sum(axis=0))
    np.testing.assert_allclose(cosines, 1.0, atol=tolerance)
