"""Figure 6 of the SKM paper: how quickly the recurrences' eigenvectors turn to the batch ones, on iris and Monk's
problem.

    python benchmarks/papers/skm_figure6.py [--out skm_figure6.png] [--seeds 20]

For each row seen: the inner product (absolute value) of the first unit eigenvector found so far with the batch one of
all rows, median and range over shuffles of the rows; incremental SKM with a = 1 and a = 3, and CCIPCA. The batch
matrix is 2 Sb + (1 − a) Sw (PCA's: the covariance). Iris comes with scikit-learn; monks from STREAM_DR_DATA/uci. The
paper's own rows' order is unknown, hence the shuffles. Needs the extra [bench] for the plot; --out "" prints the
numbers only.
"""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_iris

import stream_dr

METHODS = ("a = 1", "a = 3", "CCIPCA")
MARKS = (10, 25, 50, 100, 150)


def sets() -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """(name, rows, classes) of each set at hand."""
    iris = load_iris()
    yield "iris", iris.data, iris.target
    folder = Path(os.environ.get("STREAM_DR_DATA", "")) / "uci"
    for number in (1, 2, 3):
        path = folder / f"monks-{number}.train"
        if path.exists():
            lines = [line for line in path.read_text().splitlines() if line[:1].isdigit()]
            table = np.loadtxt(lines, delimiter=",")
            yield f"monks-{number}", table[:, 1:], table[:, 0].astype(int)


def batch_vector(X: np.ndarray, y: np.ndarray, method: str) -> np.ndarray:
    """The first unit eigenvector of the batch matrix, by numpy."""
    total = np.cov(X.T, bias=True)
    if method == "CCIPCA":
        return np.linalg.eigh(total)[1][:, -1]
    labels, counts = np.unique(y, return_counts=True)
    means = np.stack([X[y == label].mean(axis=0) for label in labels]) - X.mean(axis=0)
    between = (means.T * counts / len(y)) @ means
    a = float(method[-1])
    return np.linalg.eigh(2 * between + (1 - a) * (total - between))[1][:, -1]


def estimator(method: str) -> Any:
    """A new estimator of the first component."""
    return stream_dr.CCIPCA(1) if method == "CCIPCA" else stream_dr.IncrementalSKM(1, a=float(method[-1]))


def curve(X: np.ndarray, y: np.ndarray, method: str, seed: int) -> np.ndarray:
    """The inner product after each row (rows,), 0 while there is no component."""
    order = np.random.default_rng(seed).permutation(len(y))
    target, model, products = batch_vector(X, y, method), estimator(method), np.zeros(len(y))
    for t, i in enumerate(order):
        model.partial_fit(X[i : i + 1], y[i : i + 1])
        if model.rank_:
            products[t] = abs(float(model.components_[0] @ target))
    return products


def curves(X: np.ndarray, y: np.ndarray, seeds: int) -> dict[str, np.ndarray]:
    """method → (seeds, rows)."""
    return {method: np.stack([curve(X, y, method, seed) for seed in range(seeds)]) for method in METHODS}


def plot(results: dict[str, dict[str, np.ndarray]], out: str) -> None:
    """One panel a set, one line a method, its range over the shuffles shaded."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(results), figsize=(4.2 * len(results), 3.4), sharey=True, squeeze=False)
    for axis, (name, lines) in zip(axes[0], results.items(), strict=True):
        for method, products in lines.items():
            rows = np.arange(1, products.shape[1] + 1)
            (line,) = axis.plot(rows, np.median(products, axis=0), label=method)
            axis.fill_between(rows, products.min(axis=0), products.max(axis=0), alpha=0.15, color=line.get_color())
        axis.set(title=name, xlabel="rows seen", ylim=(0, 1.02))
    axes[0][0].set_ylabel("inner product with the batch vector")
    axes[0][0].legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(out, dpi=120)


def main() -> None:
    """Print the curves at a few rows, and plot them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="skm_figure6.png")
    parser.add_argument("--seeds", type=int, default=20)
    arguments = parser.parse_args()
    results = {name: curves(X, y, arguments.seeds) for name, X, y in sets()}
    print(f"{'set':10} {'method':8}", *(f"{f'row {m}':>9}" for m in MARKS), f"{'last':>9} {'worst':>9}")
    for name, lines in results.items():
        for method, products in lines.items():
            middle = np.median(products, axis=0)
            shown = [f"{middle[m - 1]:9.4f}" if m <= len(middle) else " " * 9 for m in MARKS]
            print(f"{name:10} {method:8}", *shown, f"{middle[-1]:9.4f} {products[:, -1].min():9.4f}")
    if arguments.out:
        plot(results, arguments.out)
        print(f"plot: {arguments.out}")


if __name__ == "__main__":
    main()
