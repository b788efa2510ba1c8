"""SKM paper, figure 5: k-NN error against the subspace's dimension for SKM, PCA and LDA.

    STREAM_DR_DATA=… python -m benchmarks.papers.skm_figure_5 --out pictures

Iris, isolet (1,560 of the 7,797 rows: "isolet part"), wine, letter, monks (1) and bupa, features as they come; random
halves, mean of --runs; SKM is the mean of a = 1, 2, 3, as in the paper (a = 1 has no direction past classes − 1:
there of 2 and 3); 1-NN. Two labels of bupa, where the paper counts 6.
"""

import argparse
from typing import Any

import numpy as np

from benchmarks.papers.drawing import figure, save
from benchmarks.papers.sets import available, error, load, split
from stream_dr import LDA, PCA, SKM

SETS = {
    "iris": (1, 2, 3, 4),
    "isolet part": (1, 2, 5, 10, 15, 20, 25, 30),
    "wine": (1, 2, 4, 6, 8, 10),
    "letter": (1, 2, 4, 6, 8, 10),
    "monks-1": (1, 2, 3, 4, 5),
    "bupa": (1, 2, 3, 4, 5, 6),
}
METHODS: dict[str, list[Any]] = {
    "SKM": [SKM(a=a) for a in (1.0, 2.0, 3.0)],
    "PCA": [PCA()],
    "LDA": [LDA(scaling="source")],
}


def main(arguments: list[str] | None = None) -> dict[str, dict[str, list[float]]]:
    """Print the tables, draw where asked; error by set, method and dimension (as many as the method has)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10, help="random halves (default 10)")
    parser.add_argument("--largest", type=int, default=4000, help="rows used of a larger set (default 4000)")
    parser.add_argument("--sets", nargs="*", default=list(SETS), help="which sets")
    parser.add_argument("--out", help="folder for the picture")
    options = parser.parse_args(arguments)
    names = [name for name in options.sets if available(name)]
    print(f"1-NN error in %, mean of {options.runs} halves; missing: {sorted(set(options.sets) - set(names))}")
    results = {}
    for name in names:
        results[name] = _one_set(name, options)
        print(f"\n{name:12s}" + "".join(f"{p:7d}" for p in SETS[name]))
        for m, values in results[name].items():
            print(f"  {m:10s}" + "".join(f"{100 * v:7.1f}" for v in values), flush=True)
    if options.out:
        _draw(results, options.out)
    return results


def _one_set(name: str, options: Any) -> dict[str, list[float]]:
    X, y = load(name)
    keep = split(y, min(1.0, options.largest / len(y)), 3)[0]
    X, y = X[keep], y[keep]
    parts = [split(y, 0.5, run) for run in range(options.runs)]
    return {m: _errors(models, X, y, parts, SETS[name]) for m, models in METHODS.items()}


def _errors(models: list[Any], X: np.ndarray, y: np.ndarray, parts: list[Any], dimensions: Any) -> list[float]:
    """Mean error by dimension over the models that have so many directions; ends where none has (LDA: classes − 1)."""
    total: list[list[float]] = [[] for _ in dimensions]
    for model in models:
        for a, b in parts:
            fitted = model.set_params(n_components=max(dimensions)).fit(X[a], y[a])
            Z, W = fitted.transform(X[a]), fitted.transform(X[b])
            for at, p in enumerate(dimensions):
                if p <= Z.shape[1]:
                    total[at].append(error(Z[:, :p], y[a], W[:, :p], y[b]))
    return [float(np.mean(values)) for values in total if values]


def _draw(results: dict[str, dict[str, list[float]]], folder: str) -> None:
    picture, axes = figure(2, 3, 3.4, 2.8)
    for axis, (name, result) in zip(axes.flat, results.items(), strict=False):
        for m, values in result.items():
            axis.plot(SETS[name][: len(values)], values, marker="o", ms=3, label=m)
        axis.set(title=name, xlabel="dimension", ylabel="1-NN error")
        axis.legend(fontsize=7)
    for axis in axes.flat[len(results) :]:
        axis.axis("off")
    save(picture, folder, "skm_figure_5")


if __name__ == "__main__":
    main()
