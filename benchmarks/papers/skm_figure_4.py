"""SKM paper, figure 4: two Gaussian classes in three dimensions, projected by PCA, SKM and LDA to one and two columns.

    python -m benchmarks.papers.skm_figure_4 --out pictures

100 rows a class, means (0, 0, 0) and (5, 5, 5); the paper names no covariance, its axes show one long direction: here
standard deviations (1, 1, 12), so that the longest direction is not the one that separates. Printed: 1-NN error of each
projection on as many new rows. LDA has one direction for two classes, SKM at a = 1 too (between-class scatter alone,
which the long direction's chance differences of means turn); at a = 3 it has as many as features. "ISKM" is the
recurrence with keep="all", rows in random order.
"""

import argparse
from typing import Any

import numpy as np

from benchmarks.papers.drawing import figure, save
from benchmarks.papers.sets import error
from stream_dr import LDA, PCA, SKM, IncrementalSKM

SPREAD = np.array([1.0, 1.0, 12.0])
PANELS = {
    "PCA, 1": (PCA, {"n_components": 1}),
    "SKM a=1, 1": (SKM, {"n_components": 1, "a": 1.0}),
    "SKM a=3, 1": (SKM, {"n_components": 1, "a": 3.0}),
    "LDA, 1": (LDA, {"n_components": 1, "scaling": "source"}),
    "PCA, 2": (PCA, {"n_components": 2}),
    "SKM a=3, 2": (SKM, {"n_components": 2, "a": 3.0}),
    "ISKM a=3, 2": (IncrementalSKM, {"n_components": 2, "a": 3.0, "keep": "all"}),
}


def two_gaussians(seed: int, n: int = 100) -> tuple[np.ndarray, np.ndarray]:
    """n rows of each class."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat([0, 1], n))
    return rng.normal(size=(2 * n, 3)) * SPREAD + 5.0 * y[:, None], y


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Print the errors, draw where asked; 1-NN error by panel."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=30, help="draws (default 30)")
    parser.add_argument("--out", help="folder for the picture")
    options = parser.parse_args(arguments)
    errors: dict[str, list[float]] = {name: [] for name in PANELS}
    for run in range(options.runs):
        (X, y), (T, truth) = two_gaussians(2 * run), two_gaussians(2 * run + 1)
        for name, (kind, params) in PANELS.items():
            model: Any = kind(**params).fit(X, y)
            errors[name].append(error(model.transform(X), y, model.transform(T), truth))
    print(f"1-NN error in % on new rows, mean of {options.runs} draws")
    means = {name: float(np.mean(values)) for name, values in errors.items()}
    for name, value in means.items():
        print(f"  {name:12s}{100 * value:6.1f}")
    if options.out:
        _draw(options.out)
    return means


def _draw(folder: str) -> None:
    picture, axes = figure(2, 4, 3.0, 2.6)
    X, y = two_gaussians(0)
    for axis, (name, columns) in zip(axes.flat, {"rows": None, **PANELS}.items(), strict=False):
        Z = X[:, [0, 2]] if columns is None else columns[0](**columns[1]).fit(X, y).transform(X)
        down = Z[:, 1] if Z.shape[1] > 1 else np.random.default_rng(0).uniform(-1, 1, len(Z))
        axis.scatter(Z[:, 0], down, c=y, cmap="coolwarm", s=10)
        axis.set_title("rows (first and third feature)" if columns is None else name, fontsize=9)
    save(picture, folder, "skm_figure_4")


if __name__ == "__main__":
    main()
