"""Two-stage paper, figure 2: accuracy of LDA on wine against γ, direct and two-stage, behind a linear SVM."""

from collections.abc import Iterator

import numpy as np
from sklearn.svm import LinearSVC

from benchmarks.papers.claims import Claim, Options
from benchmarks.papers.two_stage_figure_1 import claims, draw, scores
from benchmarks.papers.verdicts import SPLITS

GAMMAS = tuple(10.0 ** np.arange(-6, 4))


def accuracy(Z: np.ndarray, Y: np.ndarray, T: np.ndarray, V: np.ndarray) -> float:
    """Of a linear SVM (C = 1, one class against the others)."""
    return float(LinearSVC(dual=False, tol=1e-6).fit(Z, Y.argmax(axis=1)).score(T, V.argmax(axis=1)))


def run(options: Options) -> Iterator[Claim]:
    """Yield two claims: equality, and the axis."""
    gammas, runs = (GAMMAS[::3], 2) if options.quick else (GAMMAS, SPLITS)
    found = scores("LDA", "wine", gammas, runs, accuracy)
    print("LDA on wine " + " ".join(f"{v:.3f}" for v in found[..., 1].mean(axis=0)))
    yield from claims("accuracy on wine, LDA", found, (0.5, 1.0))
    if options.pictures:
        draw({"LDA": found}, gammas, "accuracy", (0.5, 1.0), options)
