"""SRP paper, figure 1: embeddings of XOR, spirals and sonar in two columns, with their 1-NN accuracy on held-out rows.

    STREAM_DR_DATA=… python -m benchmarks.papers.srp_figure_1 --out pictures

70 / 30 splits; features scaled to [0, 1]; γ of the RBF kernel by cross-validation on the training rows. Printed:
accuracy, mean of --runs splits. Drawn: the held-out rows (and faintly the training rows) of the first split. A method
with one direction only (two classes: all the supervised ones) is drawn against a random height.
"""

import argparse
from typing import Any

import numpy as np

from benchmarks.papers.drawing import figure, save
from benchmarks.papers.sets import available, load, scaled, split
from benchmarks.papers.srp_methods import METHODS, chosen_gamma, measure, method

SETS = ("xor", "spirals", "sonar")


def main(arguments: list[str] | None = None) -> dict[str, dict[str, float]]:
    """Print the table, draw where asked; accuracy by set and method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=30, help="random splits (default 30)")
    parser.add_argument("--folds", type=int, default=10, help="splits to choose γ by (default 10)")
    parser.add_argument("--features", type=int, default=1000, help="random Fourier features (default 1000)")
    parser.add_argument("--out", help="folder for the picture")
    options = parser.parse_args(arguments)
    names = [name for name in SETS if available(name)]
    print(
        f"1-NN accuracy in 2 columns, mean of {options.runs} splits 70 / 30; missing: {sorted(set(SETS) - set(names))}"
    )
    print(f"{'':10s}" + "".join(f"{m:>12s}" for m in METHODS))
    results, gammas = {}, {}
    for name in names:
        gammas[name] = _gammas(name, options)
        results[name] = {m: _accuracy(name, m, gammas[name][m], options) for m in METHODS}
        print(f"{name:10s}" + "".join(f"{results[name][m]:12.3f}" for m in METHODS), flush=True)
    if options.out:
        _draw(names, gammas, options)
    return results


def _rows(name: str, seed: int) -> tuple[np.ndarray, ...]:
    X, y = load(name)
    train, test = split(y, 0.7, seed)
    X = scaled(X)
    return X[train], y[train], X[test], y[test]


def _gammas(name: str, options: Any) -> dict[str, float]:
    X, y, _, _ = _rows(name, 0)
    return {m: chosen_gamma(m, X, y, options.folds, options.features) for m in METHODS}


def _accuracy(name: str, m: str, gamma: float, options: Any) -> float:
    runs = [measure(m, 2, gamma, run, _rows(name, run), options.features)[0] for run in range(options.runs)]
    return float(np.mean(runs))


def _draw(names: list[str], gammas: dict[str, dict[str, float]], options: Any) -> None:
    picture, axes = figure(len(names), len(METHODS), 2.6, 2.6)
    for i, name in enumerate(names):
        X, y, T, truth = _rows(name, 0)
        for j, m in enumerate(METHODS):
            model = method(m, 2, gammas[name][m], 0, options.features).fit(X, y)
            for rows, labels, alpha, size in ((X, y, 0.15, 8), (T, truth, 0.9, 14)):
                Z = model.transform(rows)
                line = Z.shape[1] < 2 or np.linalg.matrix_rank(Z - Z.mean(axis=0), tol=1e-8 * np.abs(Z).max()) < 2
                down = np.random.default_rng(0).uniform(-1, 1, len(Z)) if line else Z[:, 1]
                colours = np.unique(labels, return_inverse=True)[1]
                across = Z[:, np.ptp(Z, axis=0).argmax()] if line else Z[:, 0]
                axes[i, j].scatter(across, down, c=colours, cmap="coolwarm", alpha=alpha, s=size, linewidths=0)
            axes[i, j].set_title(f"{name}, {m}" + (" (one direction)" if line else ""), fontsize=7)
            axes[i, j].tick_params(labelsize=5)
    save(picture, options.out, "srp_figure_1")


if __name__ == "__main__":
    main()
