"""Two-stage paper, figure 1: mean AUC on yeast against γ of CCA, OPLS and HSL, direct and two-stage, behind a linear SVM.

Ten random halves; the SVM (C = 1, one a label) on the projected rows of the paper's length, WᵀXXᵀW + γWᵀW = I.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from sklearn.metrics import roc_auc_score
from sklearn.svm import LinearSVC

from benchmarks.papers.claims import Claim, Options, axis_verdict
from benchmarks.papers.drawing import figure, save, save_numbers
from benchmarks.papers.sets import available, split
from benchmarks.papers.two_stage_methods import MULTILABEL, direct, ours, right, targets
from benchmarks.papers.two_stage_table_1 import rows
from benchmarks.papers.verdicts import POINT, SPLITS, paired_interval, within
from tests.naive import two_stage as naive

GAMMAS = tuple(10.0 ** np.arange(-6, 7, 2))
TEST_SHARE = 1.0
"""Rows of the test half by rows of the training half."""
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
    """Yield two claims: that direct and two-stage are equal, and whether the curve leaves the printed axis.

    Equal: the largest difference over γ, its interval over the halves, is within the margin of errors.
    """
    furthest = np.abs(found[..., 0] - found[..., 1]).max(axis=1)
    interval = paired_interval(furthest, TEST_SHARE)
    yield Claim(
        f"{what}: largest difference of direct and two-stage over γ",
        "0",
        f"{interval.mean:.1e} (up to {interval.high:.1e}), {len(furthest)} halves",
        within(interval, -POINT, POINT),
        f"the margin is {POINT:g}",
    )
    mean = found[..., 1].mean(axis=0)
    low, high = int(mean.argmin()), int(mean.argmax())
    intervals = [paired_interval(column, TEST_SHARE) for column in found[..., 1].T]
    verdict = axis_verdict(intervals, *axis)
    yield Claim(
        f"{what}: lowest and highest mean over γ",
        f"a curve on an axis of {axis[0]:g} … {axis[1]:g}",
        ", ".join(f"{at.mean:.3f} ({at.low:.3f} … {at.high:.3f})" for at in (intervals[low], intervals[high])),
        verdict,
        "the curve is a picture only; ours is on its axis" if verdict == "not told" else "",
    )


def run(options: Options) -> Iterator[Claim]:
    """Yield two claims a method."""
    if not available("yeast"):
        yield Claim(
            "AUC on yeast", "a curve on an axis of 0.5 … 0.7", "none", "missing", "yeast is not in STREAM_DR_DATA"
        )
        return
    gammas, runs = (GAMMAS[::3], 2) if options.quick else (GAMMAS, SPLITS)
    found = {}
    for method in MULTILABEL:
        found[method] = scores(method, "yeast", gammas, runs, auc)
        print(f"{method:10s} " + " ".join(f"{v:.3f}" for v in found[method][..., 1].mean(axis=0)), flush=True)
        yield from claims(f"AUC on yeast, {method}", found[method], (0.5, 0.7))
    if options.pictures:
        draw(found, gammas, "AUC", (0.5, 0.7), options)


def draw(
    found: dict[str, np.ndarray], gammas: tuple[float, ...], what: str, axis: tuple[float, float], options: Options
) -> None:
    """Draw a panel a method, on the paper's axis: direct as circles, two-stage as a line through them.

    The band is the standard deviation over halves. The numbers are written beside the picture.
    """
    name = "two_stage_figure_1" if what == "AUC" else "two_stage_figure_2"
    picture, axes = figure(1, len(found), 2.9, 2.6)
    for panel, (method, values) in zip(axes.flat, found.items(), strict=True):
        mean, spread = values.mean(axis=0), values.std(axis=0, ddof=1)
        panel.fill_between(gammas, *(mean[:, 1] + np.outer([-1, 1], spread[:, 1])), alpha=0.2)
        panel.plot(gammas, mean[:, 0], "o", mfc="none", label="direct")
        panel.plot(gammas, mean[:, 1], label="two-stage")
        panel.set(xscale="log", xlabel="γ", ylabel=what, ylim=axis)
        panel.set_title(method, fontsize=9)
    axes[0, 0].legend(fontsize=6, loc="lower left")
    save(picture, str(options.pictures), name)
    rows = [
        (method, gamma, half, *values[half, at].tolist())
        for method, values in found.items()
        for half in range(len(values))
        for at, gamma in enumerate(gammas)
    ]
    save_numbers(Path(options.pictures or "."), name, ("method", "gamma", "half", "direct", "two-stage"), rows)
