"""What rows without a label do to the answers: `python -m benchmarks.unlabelled`.

Digits of scikit-learn: 1,200 rows, of which some have labels, and 597 test rows. Error of the nearest neighbour among the
labelled rows, on 9 components; the mean of 20 random splits. LDA does not take rows without a label, so its second column is
solved here, with the scatter of all rows.
"""

import warnings
from collections.abc import Callable

import numpy as np
import scipy.linalg
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

from stream_dr import LDA, SKM, WMV, GraphWMV
from stream_dr.errors import FewerComponents

LABELLED = (30, 60, 150, 600)
SPLITS = 20
COMPONENTS = 9
GAMMA = 1.0

Labels = list[int | None]
Fit = Callable[[np.ndarray, Labels, bool], np.ndarray]
"""Rows, labels, and whether rows without a label are used → loadings (features, components)."""


def lda(X: np.ndarray, labels: Labels, use: bool) -> np.ndarray:
    """LDA of the labelled rows, or with the scatter of all rows."""
    known = np.array([label is not None for label in labels])
    y = [label for label in labels if label is not None]
    if not use:
        return np.asarray(LDA(COMPONENTS, gamma=GAMMA).fit(X[known], y).components_.T)
    Y = np.equal.outer(y, sorted(set(y))).astype(float)
    rows = X[known] - X[known].mean(axis=0)
    cross = rows.T @ (Y / np.sqrt(Y.sum(axis=0)))
    everything = np.cov(X.T, bias=True) * len(rows) + GAMMA * np.eye(X.shape[1])
    return np.asarray(scipy.linalg.eigh(cross @ cross.T, everything)[1][:, ::-1][:, :COMPONENTS])


def with_parameter(estimator: SKM | WMV | GraphWMV) -> Fit:
    """The estimator with each value of `unlabelled`."""

    def fit(X: np.ndarray, labels: Labels, use: bool) -> np.ndarray:
        estimator.set_params(unlabelled="use" if use else "skip")
        return np.asarray(estimator.fit(X, labels).components_.T)

    return fit


WAYS: dict[str, Fit] = {
    "LDA(gamma=1)": lda,
    "SKM(a=0.5)": with_parameter(SKM(COMPONENTS, a=0.5)),
    "SKM(a=-1)": with_parameter(SKM(COMPONENTS, a=-1.0)),
    'WMV(pairs="share", alpha=-0.5)': with_parameter(WMV(COMPONENTS, alpha=-0.5, pairs="share")),
    'WMV(pairs="share", alpha=-1)': with_parameter(WMV(COMPONENTS, alpha=-1.0, pairs="share")),
    "GraphWMV(graph=-1, alpha=-1, beta=1)": with_parameter(
        GraphWMV(COMPONENTS, graph=-1.0, alpha=-1.0, beta=1.0, scaling="source")
    ),
}


def main() -> None:
    """Print a table."""
    warnings.simplefilter("ignore", FewerComponents)
    X, y = load_digits(return_X_y=True)
    X = X / 16.0
    print("| rows with a label, of 1,200 | " + " | ".join(f"{n}" for n in LABELLED) + " |")
    print("|---" * (1 + len(LABELLED)) + "|")
    for name, fit in WAYS.items():
        cells = []
        for n in LABELLED:
            errors = np.array([_errors(X, y, fit, n, seed) for seed in range(SPLITS)]).mean(axis=0)
            cells.append(f"{errors[0]:.3f} → {errors[1]:.3f}")
        print(f"| `{name}` | " + " | ".join(cells) + " |", flush=True)


def _errors(X: np.ndarray, y: np.ndarray, fit: Fit, n: int, seed: int) -> list[float]:
    """Test error without and with the rows that have no label."""
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[:1200], order[1200:]
    labels: Labels = [int(label) if i < n else None for i, label in enumerate(y[train])]
    out = []
    for use in (False, True):
        W = fit(X[train], labels, use)
        nearest = KNeighborsClassifier(1).fit(X[train[:n]] @ W, y[train[:n]])
        out.append(1.0 - nearest.score(X[test] @ W, y[test]))
    return out


if __name__ == "__main__":
    main()
