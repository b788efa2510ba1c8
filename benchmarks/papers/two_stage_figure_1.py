"""Two-stage paper, figure 1: mean AUC on yeast against γ of CCA, OPLS and HSL, direct and two-stage, behind a linear SVM.

Random halves; the SVM (C = 1, one a label) on the projected rows of the paper's length, WᵀXXᵀW + γWᵀW = I.
"""

from collections.abc import Callable, Iterator

import numpy as np
from sklearn.metrics import roc_auc_score
from sklearn.svm import LinearSVC

from benchmarks.papers.claims import Claim, Options
from benchmarks.papers.drawing import figure, save
from benchmarks.papers.sets import available, split
from benchmarks.papers.two_stage_methods import MULTILABEL, direct, ours, right, targets
from benchmarks.papers.two_stage_table_1 import rows
from tests.naive import two_stage as naive

GAMMAS = tuple(10.0 ** np.arange(-6, 7))
Score = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], float]


def scores(method: str, name: str, gammas: tuple[float, ...], runs: int, score: Score) -> np.ndarray:
    """(runs, γ, 2) of the direct W0 and of ours after one pass; score(Z, Y, T, V) of projected halves and their labels."""
    X, Y = rows(name)
    result = np.zeros((runs, len(gammas), 2))
    for run in range(runs):
        a, b = split(Y, 0.5, run)
        svd, H = naive.centred_svd(X[a]), right(method, Y[a])
        learned = ours(method).fit(X[a], targets(method, Y[a]))
        mean = X[a].mean(axis=0)
        for i, gamma in enumerate(gammas):
            for j, W in enumerate((direct(svd, H, gamma), learned.set_params(gamma=gamma).components_.T)):
                result[run, i, j] = score((X[a] - mean) @ W, Y[a], (X[b] - mean) @ W, Y[b])
    return result


def auc(Z: np.ndarray, Y: np.ndarray, T: np.ndarray, V: np.ndarray) -> float:
    """Mean over labels of the AUC of a linear SVM's decision values."""
    svm = LinearSVC(dual=False, tol=1e-6)
    pairs = zip(Y.T, V.T, strict=True)
    return float(np.mean([roc_auc_score(v, svm.fit(Z, y).decision_function(T)) for y, v in pairs]))


def claims(what: str, found: np.ndarray, axis: tuple[float, float]) -> Iterator[Claim]:
    """Two: that direct and two-stage are equal, and that the curve lies within the printed axis."""
    apart = float(np.abs(found[..., 0] - found[..., 1]).max())
    yield Claim(
        f"{what}: largest difference of direct and two-stage",
        "0",
        f"{apart:.1e}",
        "agrees" if apart < 1e-3 else "differs",
    )
    mean, spread = found[..., 1].mean(axis=0), found[..., 1].std(axis=0)
    low, high = int(mean.argmin()), int(mean.argmax())
    inside = axis[0] <= mean[low] and mean[high] <= axis[1]
    yield Claim(
        f"{what}: lowest and highest mean over γ",
        f"within {axis[0]:g} … {axis[1]:g} (the axis)",
        f"{mean[low]:.3f} ± {spread[low]:.3f}, {mean[high]:.3f} ± {spread[high]:.3f}",
        "agrees" if inside else "differs",
        "" if inside else "the curves are pictures only, their values not in the text",
    )


def run(options: Options) -> Iterator[Claim]:
    """Two claims a method."""
    if not available("yeast"):
        yield Claim("AUC on yeast", "within 0.5 … 0.7 (the axis)", "none", "missing", "yeast is not in STREAM_DR_DATA")
        return
    gammas, runs = (GAMMAS[::6], 1) if options.quick else (GAMMAS, 5)
    found = {}
    for method in MULTILABEL:
        found[method] = scores(method, "yeast", gammas, runs, auc)
        print(f"{method:10s} " + " ".join(f"{v:.3f}" for v in found[method][..., 1].mean(axis=0)), flush=True)
        yield from claims(f"AUC on yeast, {method}", found[method], (0.5, 0.7))
    if options.pictures:
        draw(found, gammas, "AUC", "two_stage_figure_1", options)


def draw(found: dict[str, np.ndarray], gammas: tuple[float, ...], what: str, name: str, options: Options) -> None:
    """A panel a method: direct as circles, two-stage as a line through them, with the spread over halves."""
    picture, axes = figure(1, len(found), 2.9, 2.6)
    for axis, (method, values) in zip(axes.flat, found.items(), strict=True):
        mean, spread = values.mean(axis=0), values.std(axis=0)
        axis.fill_between(gammas, *(mean[:, 1] + np.outer([-1, 1], spread[:, 1])), alpha=0.2)
        axis.plot(gammas, mean[:, 0], "o", mfc="none", label="direct")
        axis.plot(gammas, mean[:, 1], label="two-stage")
        axis.set(xscale="log", xlabel="γ", ylabel=what)
        axis.set_title(method, fontsize=9)
    axes[0, 0].legend(fontsize=6, loc="upper left" if what == "AUC" else "lower left")
    save(picture, str(options.pictures), name)
