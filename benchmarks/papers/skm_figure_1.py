"""SKM paper, figure 1: two long classes in two dimensions, the direction of PCA and that of LDA.

The paper gives no numbers; its axes show ±30 by −5 … 10: here 200 rows a class, standard deviations (10, 1), means (0, 0)
and (0, 5). Measured: 1-NN error of the one column on as many new rows.
"""

from collections.abc import Iterator

import numpy as np

from benchmarks.papers.claims import Claim, Options
from benchmarks.papers.drawing import figure, save, save_numbers
from benchmarks.papers.sets import Set, error
from benchmarks.papers.skm_figure_4 import MIXES, SEPARATES
from benchmarks.papers.verdicts import SPLITS, paired_interval, within
from stream_dr import LDA, PCA

METHODS = {"PCA": PCA(1), "LDA": LDA(1)}


def two_classes(seed: int) -> Set:
    """200 rows of each class."""
    rng, y = np.random.default_rng(seed), np.repeat([0, 1], 200)
    return rng.normal(size=(400, 2)) * [10, 1] + np.outer(y, [0, 5]), y


def run(options: Options) -> Iterator[Claim]:
    """PCA mixes the classes, LDA does not; the picture where asked."""
    errors: dict[str, list[float]] = {name: [] for name in METHODS}
    for draw in range(3 if options.quick else SPLITS):
        (X, y), (T, truth) = two_classes(2 * draw), two_classes(2 * draw + 1)
        for name, method in METHODS.items():
            errors[name].append(error(method.fit(X, y).transform(X), y, method.transform(T), truth))
    for name, paper, low, high in (("PCA", "mixes", MIXES, np.inf), ("LDA", "separates", -np.inf, SEPARATES)):
        interval = paired_interval(np.array(errors[name]), 0.0)  # draws are independent
        mean, least, most = (100 * value for value in interval)
        ours = f"1-NN error {mean:.1f} % ({least:.1f} … {most:.1f})"
        yield Claim(f"{name}, 1 dimension", paper, ours, within(interval, low, high))
    if options.pictures:
        _draw(str(options.pictures))
        numbers = [(name, draw, value) for name, values in errors.items() for draw, value in enumerate(values)]
        save_numbers(options.pictures, "skm_figure_1", ("projection", "draw", "error"), numbers)


def _draw(folder: str) -> None:
    picture, axes = figure(1, 1, 4.6, 2.6)
    X, y = two_classes(0)
    axes[0, 0].scatter(X[:, 0], X[:, 1], c=y, cmap="coolwarm", s=6)
    for (name, method), color in zip(METHODS.items(), ("black", "C2"), strict=True):
        direction = method.fit(X, y).components_[0]
        ends = X.mean(axis=0) + np.outer([-1, 1], direction / np.abs(direction / [30, 8]).max())
        axes[0, 0].plot(*ends.T, color=color, label=name)
    axes[0, 0].set(xlabel="X1", ylabel="X2", xlim=(-30, 30), ylim=(-5, 10))  # the paper's axes
    axes[0, 0].legend(fontsize=8)
    save(picture, folder, "skm_figure_1")
