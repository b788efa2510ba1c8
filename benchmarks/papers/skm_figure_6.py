"""SKM paper, figure 6: how quickly the recurrences' first eigenvector turns to the batch one, on iris and Monk's problem.

For each number of rows seen: the inner product (absolute value) of the first unit eigenvector found so far with the batch
one of all rows, median and range over shuffles of the rows; incremental SKM with a = 1 and a = 3, and CCIPCA. All of them
are measured with amnesic = 0, equal weights as in the paper's equation 22, and with amnesic = 1. The batch
matrix is 2 Sb + (1 − a) Sw (PCA's: the covariance). The paper's 556 rows are monks-1's (124 + 432); its rows' order is
unknown, hence the shuffles.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.papers.claims import Claim, Options
from benchmarks.papers.drawing import figure, save, save_numbers
from benchmarks.papers.sets import available, load
from benchmarks.papers.verdicts import SMALLEST_GAP, SPLITS, paired_interval, within
from stream_dr import CCIPCA, IncrementalSKM

SETS = ("iris", "monks-1", "monks-2", "monks-3")
METHODS = ("a = 1", "a = 3", "CCIPCA")
COLORS = dict(zip(METHODS, ("black", "C1", "C0"), strict=True))
AMNESIC = (0.0, 1.0)
"""Weights of recent rows, the same for every method."""
NEAR = 0.98
"""Least inner product that is near 1."""
STEP = 5
"""Rows from one inner product to the next."""
Line = tuple[str, float]
"""Method and amnesic of a curve."""


def batch_pairs(X: np.ndarray, y: np.ndarray, method: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the batch matrix' eigenvalues, the largest last, and its unit eigenvectors, by numpy."""
    total = np.cov(X.T, bias=True)
    if method != "CCIPCA":
        labels, counts = np.unique(y, return_counts=True)
        means = np.stack([X[y == label].mean(axis=0) for label in labels]) - X.mean(axis=0)
        between = (means.T * counts / len(y)) @ means
        total = 2 * between + (1 - float(method[-1])) * (total - between)
    values, vectors = np.linalg.eigh(total)
    return values, vectors


def batch_pair(X: np.ndarray, y: np.ndarray, method: str) -> tuple[float, np.ndarray]:
    """Return the batch matrix' largest eigenvalue and its unit eigenvector."""
    values, vectors = batch_pairs(X, y, method)
    return float(values[-1]), vectors[:, -1]


def curve(X: np.ndarray, y: np.ndarray, method: str, seed: int, step: int = STEP, amnesic: float = 1.0) -> np.ndarray:
    """The inner product after every `step` rows and after the last, 0 while there is no component."""
    order, vector, products = np.random.default_rng(seed).permutation(len(y)), batch_pair(X, y, method)[1], []
    model: Any
    if method == "CCIPCA":
        model = CCIPCA(1, amnesic=amnesic)
    else:
        model = IncrementalSKM(1, a=float(method[-1]), keep="all", amnesic=amnesic)
    for start in range(0, len(y), step):
        part = order[start : start + step]
        model.partial_fit(X[part], y[part])
        products.append(abs(float(model.components_[0] @ vector)) if model.rank_ else 0.0)
    return np.array(products)


def run(options: Options) -> Iterator[Claim]:
    """Each curve's claim; the picture where asked."""
    results: dict[str, dict[Line, np.ndarray]] = {}
    for name in SETS:
        if not available(name):
            yield Claim(f"{name}: convergence", "—", "—", "missing", "it is read from STREAM_DR_DATA")
            continue
        X, y = load(name)
        shuffles = range(2 if options.quick else SPLITS)
        results[name] = {
            (method, amnesic): np.stack([curve(X, y, method, seed, amnesic=amnesic) for seed in shuffles])
            for method in METHODS
            for amnesic in AMNESIC
        }
        for (method, amnesic), products in results[name].items():
            values = batch_pairs(X, y, method)[0]
            gap = (values[-1] - values[-2]) / np.abs(values).max()
            yield _claim(f"{name}, {method}, amnesic {amnesic:g}", products, _reason(X, y, method, amnesic), gap)
    if options.pictures:
        _draw(results, str(options.pictures))
        head = ("set", "method", "amnesic", "shuffle", "rows", "product")
        numbers: list[tuple[object, ...]] = [
            (name, method, amnesic, shuffle, STEP * (at + 1), value)
            for name, lines in results.items()
            for (method, amnesic), products in lines.items()
            for shuffle, line in enumerate(products.tolist())
            for at, value in enumerate(line)
        ]
        save_numbers(options.pictures, "skm_figure_6", head, numbers)


def _claim(what: str, products: np.ndarray, reason: str, gap: float) -> Claim:
    """Judge a curve by its last inner product, mean over shuffles; gap: of the batch matrix' first two eigenvalues."""
    after, last = products[:, 100 // STEP - 1].mean(), paired_interval(products[:, -1], 0.0)
    ours = f"{after:.3f} after 100 rows, {last.mean:.4f} after all ({last.low:.3f} … {min(last.high, 1.0):.3f})"
    verdict = within(last, NEAR, np.inf)
    if gap < SMALLEST_GAP:
        verdict, reason = "undecided", f"the first two eigenvalues are {gap:.0e} apart: no single vector"
    shown = "" if verdict == "agrees" else reason
    return Claim(f"{what}: inner product with the batch vector", f"near 1 (from {NEAR:g})", ours, verdict, shown)


def _reason(X: np.ndarray, y: np.ndarray, method: str, amnesic: float) -> str:
    """Return why a curve may not reach 1.

    Of an eigenvalue above 0 it is how slowly the direction of the first rows fades: as the rows to the
    power −(1 + amnesic)(1 − λ_2 / λ_1). In addition, the rows are learned 30 times over.
    """
    second, eigenvalue = batch_pairs(X, y, method)[0][-2:]
    often = curve(np.tile(X, (30, 1)), np.tile(y, 30), method, 0, step=500, amnesic=amnesic)[-1]
    told = f"the batch matrix' largest eigenvalue is {eigenvalue:.3f}; all rows 30 times over: {often:.3f}"
    if eigenvalue > 0:
        power = (1 + amnesic) * (1 - second / eigenvalue)
        return f"{told}. The wrong direction of the first rows fades only as rows^−{power:.2f}"
    return f"{told}. The recurrence's vectors are eigenvectors times eigenvalues: below 0 there is nothing to turn to"


def _draw(results: dict[str, dict[Line, np.ndarray]], folder: str) -> None:
    picture, axes = figure(1, len(results), 2.8, 2.6)
    for axis, (name, lines) in zip(axes[0], results.items(), strict=True):
        for (method, amnesic), products in lines.items():
            color = COLORS[method]
            style = ":" if amnesic == 0 else "-"
            rows = STEP * np.arange(1, products.shape[1] + 1)
            label = f"{method}, amnesic {amnesic:g}"
            axis.plot(rows, np.median(products, axis=0), label=label, lw=1.2, color=color, ls=style)
            axis.fill_between(rows, products.min(axis=0), products.max(axis=0), alpha=0.06, color=color)
        axis.set(title=name, xlabel="rows seen", ylim=(0, 1.02), xlim=(0, 150 if name == "iris" else 600))
    axes[0, 0].set_ylabel("inner product")
    axes[0, 0].legend(loc="lower right", fontsize=7)
    save(picture, folder, "skm_figure_6")
