"""Cross-validation of the ridge and of the number of components, with all rows and one model for each fold and value."""

from typing import Any, NamedTuple

import numpy as np

EPS = float(np.finfo(np.float64).eps)


class Task(NamedTuple):
    """Rows X (n, d), encoded targets Y (n, k), weights (n,), the fold (n,) of each row, and parameters.

    `method` is "lda", "opls", "cca", "hsl" or "plsda". `least` is min_class_rows for one label a row, else 1.
    """

    method: str
    X: np.ndarray
    Y: np.ndarray
    weights: np.ndarray
    fold: np.ndarray
    standardize: bool = False
    least: int = 1


class Path(NamedTuple):
    """Mean errors (m,), their standard errors (m,) and the rounding (m,) that the mean errors may have."""

    mean: np.ndarray
    std_error: np.ndarray
    rounding: np.ndarray


class Trained(NamedTuple):
    """Means and scale of training rows, and the centred rows and targets, times the roots of their weights."""

    mean: np.ndarray
    target_mean: np.ndarray
    scale: np.ndarray
    A: np.ndarray
    B: np.ndarray


def encode(y: Any, method: str) -> np.ndarray:
    """Targets (n, k) as numbers. Columns are sorted labels, or the columns of the targets."""
    if isinstance(y, np.ndarray) and y.ndim == 2:
        return y.astype(float)
    sets = [list(row) if isinstance(row, list | tuple | set) else [row] for row in y]
    labels = sorted({label for row in sets for label in row})
    out = np.array([[float(label in row) for label in labels] for row in sets])
    return out / np.sqrt(np.maximum(out.sum(axis=1, keepdims=True), 1.0)) if method == "hsl" else out


def ready(Y: np.ndarray, least: int) -> np.ndarray:
    """Mask (k,) of the targets that are used: labels with at least `least` rows."""
    rows = (Y != 0).sum(axis=0)
    return rows >= (least if (rows >= least).sum() >= 2 else 1)


def loss(task: Task) -> np.ndarray:
    """Matrix (k, k) with which residuals e (k,) have the loss eᵀ (matrix) e."""
    used, k = ready(task.Y, task.least), task.Y.shape[1]
    if task.method in ("opls", "plsda"):
        return np.diag(used.astype(float))
    if task.method in ("lda", "hsl"):
        n = task.weights @ (task.Y > 0)
        return np.diag([1.0 / n[j] if used[j] else 0.0 for j in range(k)])

    rows = (task.Y[:, ~used] == 0).all(axis=1)
    w, Y = task.weights[rows], task.Y[rows]
    Y = Y - (w @ Y) / w.sum()
    scatter = (Y * w[:, None]).T @ Y
    varying = np.diagonal(scatter) > 1e-12 * w.sum()
    size = np.sqrt(np.diagonal(scatter)[varying])
    out = np.zeros((k, k))
    part = scatter[np.ix_(varying, varying)] / np.outer(size, size)
    out[np.ix_(varying, varying)] = np.linalg.pinv(part, rcond=1e-10, hermitian=True) / np.outer(size, size)
    return out


def train(task: Task, rows: np.ndarray) -> Trained:
    """Centre and scale the training rows. Rows of a label with too few rows are left out, as is the label."""
    used = ready(task.Y[rows], task.least)
    if task.least > 1:
        rows = rows & (task.Y[:, ~used] == 0).all(axis=1)
    X, Y, w = task.X[rows], task.Y[rows] * used, task.weights[rows]
    mean, target_mean = (w @ X) / w.sum(), (w @ Y) / w.sum()
    root = np.sqrt(w)[:, None]
    A, B = root * (X - mean), root * (Y - target_mean)
    deviation = np.sqrt((A**2).sum(axis=0) / w.sum())
    constant = deviation <= 1e-13 * np.abs(mean)
    A[:, constant] = 0.0
    scale = np.where(constant | (not task.standardize), 1.0, 1.0 / np.where(constant, 1.0, deviation))
    return Trained(mean, target_mean, scale, A * scale, B)


def unit(A: np.ndarray) -> float:
    """Mean of the columns' scatters, over columns that vary."""
    return float((A**2).sum() / max((A != 0).any(axis=0).sum(), 1))


def ridge_solution(t: Trained, tau: float) -> np.ndarray:
    """W (d, k) of the ridge tau · unit, in the units of the rows."""
    d = t.A.shape[1]
    if tau == 0.0:
        return t.scale[:, None] * np.linalg.lstsq(t.A, t.B, rcond=np.sqrt(d * EPS))[0]
    return t.scale[:, None] * np.linalg.solve(t.A.T @ t.A + tau * unit(t.A) * np.eye(d), t.A.T @ t.B)


def pls_solution(t: Trained, components: int) -> np.ndarray:
    """W (d, k) of PLS by deflating the rows, in the units of the rows."""
    A, B = t.A.copy(), t.B.copy()
    weights, loads, coefficients = [], [], []
    for _ in range(components):
        U, s, _ = np.linalg.svd(A.T @ B, full_matrices=False)
        if s[0] <= 1e-10 * np.linalg.norm(t.A) * np.linalg.norm(t.B):
            break
        scores = A @ U[:, 0]
        size = scores @ scores
        weights.append(U[:, 0])
        loads.append(A.T @ scores / size)
        coefficients.append(B.T @ scores / size)
        A -= np.outer(scores, loads[-1])
        B -= np.outer(scores, coefficients[-1])
    if not weights:
        return np.zeros((A.shape[1], B.shape[1]))
    R = np.array(weights).T @ np.linalg.inv(np.array(loads) @ np.array(weights).T)
    return t.scale[:, None] * (R @ np.array(coefficients))


def cross_validate(task: Task, values: Any) -> Path:
    """Errors for each ridge in units of `unit`, or for each number of components if the method is "plsda"."""
    M = loss(task)
    folds = [f for f in np.unique(task.fold) if task.weights[task.fold == f].sum() > 0]
    solve: Any = pls_solution if task.method == "plsda" else ridge_solution
    n = np.array([task.weights[task.fold == f].sum() for f in folds])
    sse, rounding = np.zeros((len(folds), len(values))), np.zeros((len(folds), len(values)))
    for f, fold in enumerate(folds):
        held = task.fold == fold
        X, Y, w = task.X[held], task.Y[held], task.weights[held]
        t = train(task, ~held)
        own_x, own_y = np.average(X, axis=0, weights=w), np.average(Y, axis=0, weights=w)
        spread = np.sqrt(w @ (X - own_x) ** 2)
        for i, value in enumerate(values):
            W = solve(t, value)
            for x, y, weight in zip(X, Y, w, strict=True):
                e = y - t.target_mean - (x - t.mean) @ W
                sse[f, i] += weight * (e @ M @ e)
            bias = own_y - t.target_mean - (own_x - t.mean) @ W
            size = np.sqrt(w @ (Y - own_y) ** 2 + n[f] * bias**2 + 1e-3 * (spread @ np.abs(W)) ** 2)
            rounding[f, i] = 1e-9 * (size @ np.abs(M) @ size)
    mean = sse.sum(axis=0) / n.sum()
    K = len(folds)
    std_error = np.sqrt(((n[:, None] / n.mean() * (sse / n[:, None] - mean)) ** 2).sum(axis=0) / (K * (K - 1)))
    return Path(mean, std_error, rounding.sum(axis=0) / n.sum())
