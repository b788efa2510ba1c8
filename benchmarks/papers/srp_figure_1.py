"""SRP paper, figure 1: XOR, spirals and sonar in two columns, with the 1-NN accuracy of rows held out.

Ten splits 70 / 30; features scaled to [0, 1]; γ of the RBF kernel by 10-fold cross-validation on each split's training
rows. The paper shows pictures and no figures: what it says of them is compared. Drawn: the first split, held-out rows
strong, training rows faint. XOR and spirals are made as its text has them, where it says how (sets.py).
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.papers.claims import Claim, Options
from benchmarks.papers.drawing import figure, numbered_values, save, save_numbers
from benchmarks.papers.srp_dense import Rows, kernel_pca, kspca_of_classes
from benchmarks.papers.srp_methods import METHODS, accuracy, chosen_gamma, gammas, missing, rows_of
from benchmarks.papers.verdicts import SPLITS, equal, identity, order, paired_interval, within

SETS = ("xor", "spirals", "sonar")
KERNEL, LINEAR = ("KSPCA, exact", "KSRP, exact"), ("SPCA", "SRP")
TEST_SHARE = 3 / 7
"""Rows held out by training rows."""
SEPARATED = 0.9
"""Least accuracy of classes that are separated."""
UNSUPERVISED = ("PCA", "kernel PCA, exact")

Scores = dict[str, np.ndarray]
"""Accuracies (runs,) by method."""


def run(options: Options) -> Iterator[Claim]:
    """Accuracies, the claims on them, and the pictures."""
    runs, folds = (2, 2) if options.quick else (SPLITS, 10)
    print(f"1-NN accuracy in 2 columns, mean and standard deviation of {runs} splits")
    absent = missing(SETS)
    names, results = [name for name in SETS if name not in absent], {}
    for name in absent:
        yield Claim(name, "a picture", "–", "missing", "STREAM_DR_DATA does not have it.")
    for name in names:
        results[name] = scores(name, runs, folds)
        for method, found in results[name].items():
            print(f"{name:10s}{method:20s}{told(found)}", flush=True)
        yield from _claims(name, results[name])
    yield _same(names)
    yield _noise(2 if options.quick else SPLITS)
    if options.pictures:
        _draw(names, options.pictures)
        head = ("set", "method", "split", "accuracy")
        save_numbers(options.pictures, "srp_figure_1", head, numbered_values(results))


def scores(name: str, runs: int, folds: int) -> Scores:
    """Accuracy of each method on each split, in two columns."""
    found: dict[str, list[float]] = {method: [] for method in METHODS}
    for seed in range(runs):
        rows = rows_of(name, seed)
        chosen = gammas(rows, folds)
        for method, embed in METHODS.items():
            found[method].append(accuracy(embed(rows, 2, chosen[method], seed), rows))
    return {method: np.array(values) for method, values in found.items()}


def told(found: np.ndarray) -> str:
    """Mean ± standard deviation."""
    return f"{found.mean():.3f} ± {found.std():.3f}"


def _claims(name: str, found: Scores) -> Iterator[Claim]:
    def means(methods: tuple[str, ...]) -> str:
        return ", ".join(f"{method.removesuffix(', exact')} {told(found[method])}" for method in methods)

    for others, say in ((LINEAR, "linear SPCA and SRP"), (UNSUPERVISED, "PCA and kernel PCA")):
        lead = np.mean([found[kernel] - found[other] for kernel in KERNEL for other in others], axis=0)
        verdict = order(lead, TEST_SHARE)
        yield Claim(
            f"{name}: KSPCA and KSRP beside {say}",
            "KSPCA and KSRP separate the classes better",
            f"{means(KERNEL)}; {means(others)}",
            verdict,
            ""
            if verdict == "agrees" or name != "spirals"
            else "The noise columns hide the arms from a kernel of one width: see the last line.",
        )
    near = equal(found["KSRP, exact"] - found["KSRP, Fourier"], TEST_SHARE)
    yield Claim(
        f"{name}: 1,000 random Fourier features in the place of KSRP's kernel",
        "1,000 approximate the kernel well",
        f"{told(found['KSRP, Fourier'])}, exact {told(found['KSRP, exact'])}",
        near,
        ""
        if near == "agrees"
        else "They err by about 0.03 in every kernel value; with 16,000 it is nearer (figure 2).",
    )


def _same(names: list[str]) -> Claim:
    """The library's exact kernel methods beside the dense ones, on the first split."""
    off = []
    for name in names:
        rows = rows_of(name, 0)
        gamma = chosen_gamma(rows, True, 2)
        for embed, (_, written) in (
            (METHODS["KSPCA, exact"], kspca_of_classes(rows, 1, gamma)),
            (METHODS["kernel PCA, exact"], kernel_pca(rows, 1, gamma)),
        ):
            ours, theirs = embed(rows, 1, gamma, 0)[1][:, 0], written[:, 0]
            off.append(1 - abs(float(np.corrcoef(ours, theirs)[0, 1])))
    return Claim(
        "exact KSPCA and kernel PCA by feature_map=nystroem(), every row a landmark, beside (n, n) matrices as written",
        "equation 5",
        f"held-out rows' first columns correlate to 1 − {max(*off, 1e-16):.0e} ({', '.join(names)})",
        identity(max(off)),
    )


def _noise(runs: int) -> Claim:
    """Spirals with fewer columns of noise: the arms' own columns are the first two."""
    found = {}
    for columns in (8, 2, 0):
        scores = []
        for seed in range(runs):
            rows = rows_of("spirals", seed)
            few = Rows(rows.X[:, : 2 + columns], rows.y, rows.T[:, : 2 + columns], rows.truth)
            scores.append(accuracy(kspca_of_classes(few, 1, chosen_gamma(few, True)), few))
        found[columns] = np.array(scores)
    return Claim(
        "spirals, exact KSPCA in one column, with 8, 2 and no columns of noise",
        "(8) separates the classes",
        ", ".join(f"{told(scores)} ({columns})" for columns, scores in found.items()),
        within(paired_interval(found[8], TEST_SHARE), SEPARATED, np.inf),
        "So it is the noise. The paper states neither its shape nor the arms' turns; here they turn one and a half times, "
        "and the noise is uniform: scaled to [0, 1], as the paper scales, it is as wide as they are.",
    )


def _draw(names: list[str], folder: Path) -> None:
    picture, axes = figure(len(names), len(METHODS), 1.5, 1.5)
    for i, name in enumerate(names):
        rows = rows_of(name, 0)
        chosen = gammas(rows)
        for j, (method, embed) in enumerate(METHODS.items()):
            Z, W = embed(rows, 2, chosen[method], 0)
            for points, labels, alpha, size in ((Z, rows.y, 0.2, 3), (W, rows.truth, 1.0, 6)):
                colours = np.unique(labels, return_inverse=True)[1]
                axes[i, j].scatter(*points.T, c=colours, cmap="coolwarm", alpha=alpha, s=size, linewidths=0)
            axes[i, j].set_title(f"{name}: {method}", fontsize=6)
            axes[i, j].set_xticks([])
            axes[i, j].set_yticks([])
    save(picture, str(folder), "srp_figure_1")
