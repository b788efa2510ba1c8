"""SRP paper, figure 2: 1-NN accuracy and time against the number of columns, on XOR, ionosphere and MNIST.

    STREAM_DR_DATA=… python -m benchmarks.papers.srp_figure_2 --out pictures

70 / 30 splits, mean of --runs; features scaled to [0, 1]; γ of the RBF kernel by cross-validation on the training
rows. In the place of MNIST stand its 10,000 test images ("MNIST test set"). Time: learning, solving and projecting
both parts, in seconds. With c classes the supervised methods have c − 1 directions: past that, columns add nothing
(see srp_methods.py).
"""

import argparse
from typing import Any

import numpy as np

from benchmarks.papers.drawing import figure, save
from benchmarks.papers.sets import available, load, scaled, split
from benchmarks.papers.srp_methods import METHODS, chosen_gamma, measure

SETS = {"xor": (1, 2, 4, 6, 8, 10), "ionosphere": (1, 2, 5, 10, 20, 30), "MNIST test set": (2, 5, 10, 20, 40)}


def main(arguments: list[str] | None = None) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Print the tables, draw where asked; (accuracy, seconds) by set, method and number of columns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=30, help="random splits (default 30; 3 for MNIST)")
    parser.add_argument("--folds", type=int, default=10, help="splits to choose γ by (default 10)")
    parser.add_argument("--features", type=int, default=1000, help="random Fourier features (default 1000)")
    parser.add_argument("--sets", nargs="*", default=list(SETS), help="which sets")
    parser.add_argument("--out", help="folder for the picture")
    options = parser.parse_args(arguments)
    names = [name for name in options.sets if available(name)]
    print(f"missing: {sorted(set(options.sets) - set(names))}")
    results = {name: _one_set(name, options) for name in names}
    if options.out:
        _draw(results, options.out)
    return results


def _one_set(name: str, options: Any) -> dict[str, list[tuple[float, float]]]:
    X, y = load(name)
    X, large = scaled(X), len(y) > 5000
    runs = min(options.runs, 3) if large else options.runs
    train = split(y, 0.7, 0)[0][:1500]
    gammas = {m: chosen_gamma(m, X[train], y[train], 2 if large else options.folds, options.features) for m in METHODS}
    print(f"\n{name}: {X.shape[0]:,} × {X.shape[1]}, {runs} splits; accuracy and seconds by number of columns")
    print(f"{'':12s}" + "".join(f"{k:>16d}" for k in SETS[name]))
    result: dict[str, list[tuple[float, float]]] = {}
    for m in METHODS:
        result[m] = []
        for k in SETS[name]:
            measured = []
            for run in range(runs):
                a, b = split(y, 0.7, run)
                measured.append(measure(m, k, gammas[m], run, (X[a], y[a], X[b], y[b]), options.features))
            result[m].append((float(np.mean([r[0] for r in measured])), float(np.median([r[1] for r in measured]))))
        print(f"{m:12s}" + "".join(f"{a:9.3f}{s:7.3f}" for a, s in result[m]), flush=True)
    return result


def _draw(results: dict[str, dict[str, list[tuple[float, float]]]], folder: str) -> None:
    picture, axes = figure(2, len(results), 3.6, 3.0)
    for j, (name, result) in enumerate(results.items()):
        for m, points in result.items():
            style = "--" if m in ("kernel PCA", "KSPCA", "KSRP") else "-"
            axes[0, j].plot(SETS[name], [a for a, _ in points], style, marker="o", ms=3, label=m)
            axes[1, j].plot(SETS[name], [s for _, s in points], style, marker="o", ms=3, label=m)
        axes[0, j].set(title=name, ylabel="1-NN accuracy")
        axes[1, j].set(xlabel="columns", ylabel="seconds", yscale="log")
        axes[0, j].legend(fontsize=6)
    save(picture, folder, "srp_figure_2")


if __name__ == "__main__":
    main()
