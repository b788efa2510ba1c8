"""WMV lecture, its tables of results: error of 1-NN behind two-parameter WMV, weighted MMC, PCA, and on the rows alone.

Parameters by cross-validation on the training part of each 80 / 20 split: α/β of WMV, α of weighted MMC, the number of
columns; of k-NN, k. The grid of WMV has α/β = 1 − 2c, which for c classes of one size is MMC. Rows are standardised by the
training part's spread. Past 4,096 features (the lecture's table of high-dimensional data) solutions are those on linear
landmarks, all training rows, which are exact and small; refine, over the stream, is compared with them.

The lecture's lists of sets are pictures. 14 sets of UCI's are at hand; averages over other sets are no target, the order is.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.stats import binomtest
from sklearn.preprocessing import normalize

from benchmarks.papers.claims import Claim, Options
from benchmarks.papers.drawing import figure, numbered_values, save, save_numbers
from benchmarks.papers.sets import NEWS20, RCV1_FRAGMENT, available, load, load_text, split
from benchmarks.papers.verdicts import Interval, identity, order, within
from stream_dr import MMC, PCA, WMV, nystroem

LECTURE = {"WMV": 9.5, "weighted MMC": 10.0, "PCA": 13.6, "none": 13.8}
HIGH = {"WMV": 15.2, "PCA": 17.8, "none": 22.0}
SETS = (
    "iris", "wine", "breast cancer", "digits", "ionosphere", "sonar", "bupa", "monks-1", "monks-2", "monks-3",
    "letter", "isolet part", "image segments", "phishing",
)  # fmt: skip
WIDE = (RCV1_FRAGMENT, NEWS20)
SHARES = (0.1, 0.25, 0.5, 0.75, 1.0)
"""Numbers of columns tried, as shares of the features."""
TEST_SHARE = 0.25
"""Rows of the test part by rows of the training part."""
NEIGHBOURS = (1, 3, 5, 9, 15)
KNOWN = "PCA, columns by the test part"
"""No method: what the choice of columns costs."""
LARGEST = 2000
"""Rows used of a larger set, drawn at random; 1,200 of a wide one."""

Projected = tuple[np.ndarray, np.ndarray]


class Tried(NamedTuple):
    """A method and its parameters that were tried. alpha: of WMV in units of β, of weighted MMC its own."""

    method: str
    alpha: float


def grid(method: str, classes: int) -> tuple[float, ...]:
    """Values of alpha; WMV's have those that are weighted MMC's for classes of one size."""
    weights = (0.0, 0.1, 0.5, 1.0, 2.0, 5.0)
    if method == "WMV":
        return (-0.1, -0.5, -1.0, -2.0, -4.0, *(1.0 - classes * (1.0 + a) for a in weights))
    return weights if method == "weighted MMC" else (0.0,)


def projected(method: str, X: Any, y: np.ndarray, T: Any, most: int, **options: Any) -> dict[Tried, Projected]:
    """Rows X, of labels y, and T (rows, ≤ most), by every alpha of the grid: rows are learned once."""
    kind: Any = {"WMV": WMV, "weighted MMC": MMC, "PCA": PCA}[method]
    state = kind(n_components=most, **options).fit(X, y).state_
    found = {}
    for alpha in grid(method, len(np.unique(y))):
        given = {} if method == "PCA" else {"alpha": alpha}
        solved = kind(n_components=most, **given, **options).solve(state)
        found[Tried(method, alpha)] = solved.apply(X), solved.apply(T)
    return found


def wrong(rows: Projected, y: np.ndarray, truth: np.ndarray, columns: int, k: int = 1) -> float:
    """Error of k-NN in % (scikit-learn's waits for its threads where others use the processors)."""
    train, test = (Z[:, :columns] for Z in rows)
    products = test @ train.T
    products = products.toarray() if sp.issparse(products) else products
    lengths = train.multiply(train).sum(axis=1) if sp.issparse(train) else (train**2).sum(axis=1)
    near = np.argpartition(np.asarray(lengths).ravel() - 2.0 * products, k - 1, axis=1)[:, :k]
    labels, codes = np.unique(y, return_inverse=True)
    votes = np.stack([np.bincount(codes[row], minlength=len(labels)) for row in near])
    return float(100 * np.mean(labels[votes.argmax(axis=1)] != truth))


def standardised(X: np.ndarray, T: np.ndarray) -> Projected:
    """Both by the mean and spread of X."""
    spread = X.std(axis=0)
    return tuple((Z - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0) for Z in (X, T))  # type: ignore[return-value]


def one_split(X: np.ndarray, y: np.ndarray, run: int, folds: int) -> dict[str, float]:
    """Errors of every method on the test part of split `run`, in %."""
    a, b = split(y, 0.8, run)
    (train, test), labels, truth = standardised(X[a], X[b]), y[a], y[b]
    d, c = X.shape[1], len(np.unique(y))
    columns = sorted({max(1, round(share * d)) for share in SHARES} | {min(c - 1, d)})
    parts = [split(labels, 0.8, 1000 + fold) for fold in range(folds)]
    errors = {"none": wrong((train, test), labels, truth, d)}
    for method in ("WMV", "weighted MMC", "PCA"):
        inner = [projected(method, train[i], labels[i], train[j], d) for i, j in parts]
        outer = projected(method, train, labels, test, d)
        totals = {
            (tried, p): sum(
                wrong(rows[tried], labels[i], labels[j], p) for rows, (i, j) in zip(inner, parts, strict=True)
            )
            for tried, p in product(outer, columns)
        }
        best, p = min(totals, key=lambda key: totals[key])
        errors[method] = wrong(outer[best], labels, truth, p)
        if method == "WMV":  # the grid that does not reach MMC
            near, q = min((key for key in totals if key[0].alpha >= -4.0), key=lambda key: totals[key])
            errors["WMV, α/β ≥ −4"] = wrong(outer[near], labels, truth, q)
        if method == "PCA":
            errors[KNOWN] = min(wrong(outer[best], labels, truth, p) for p in columns)
        if method == "weighted MMC":
            ks = {
                k: sum(wrong(rows[best], labels[i], labels[j], p, k) for rows, (i, j) in zip(inner, parts, strict=True))
                for k in NEIGHBOURS
            }
            errors["weighted MMC, k-NN"] = wrong(outer[best], labels, truth, p, min(ks, key=lambda k: ks[k]))
    return errors


def wide_rows(name: str) -> tuple[sp.csr_matrix, np.ndarray] | None:
    """At most 1,200 rows drawn at random, of unit length, counts as 1 + log; None where the set is not to be had."""
    given = load_text(name)
    if given is None:
        return None
    keep = split(given[1], min(1.0, 1200 / len(given[1])), 7)[0]
    X, y = sp.csr_matrix(given[0], dtype=float)[keep], given[1][keep]
    if name == NEWS20:
        X.data = 1.0 + np.log(X.data)
    return normalize(X), y


def one_wide_split(X: sp.csr_matrix, y: np.ndarray, run: int, folds: int) -> tuple[dict[str, float], float]:
    """The same for wide rows, and how far refine's first component is from the exact one on linear landmarks (radians)."""
    a, b = split(y, 0.8, run)
    most = len(a)
    columns = (1, 2, 5, 10, 20, 50, 100, 200, 500, most)
    parts = [split(y[a], 0.8, 1000 + fold) for fold in range(folds)]
    errors = {"none": wrong((X[a], X[b]), y[a], y[b], X.shape[1])}
    for method in ("WMV", "PCA"):
        totals: dict[tuple[Tried, int], float] = {}
        for i, j in parts:
            on = {"feature_map": nystroem(len(i), kernel="linear")}
            inner = projected(method, X[a][i], y[a][i], X[a][j], most, **on)
            for tried, p in product(inner, columns):
                totals[tried, p] = totals.get((tried, p), 0.0) + wrong(inner[tried], y[a][i], y[a][j], p)
        best, p = min(totals, key=lambda key: totals[key])
        on = {"feature_map": nystroem(len(a), kernel="linear")}
        outer = projected(method, X[a], y[a], X[b], most, **on)
        errors[method] = wrong(outer[best], y[a], y[b], p)
        if method == "WMV":
            refined = WMV(1, alpha=best.alpha, scatter="diagonal").partial_fit(X[a], y[a])
            refined.refine([(X[a], y[a])], 1e-8, 100)
            exact, other = outer[best][0][:, 0], refined.transform(X[a])[:, 0]
            cosine = abs(exact @ other) / np.linalg.norm(exact) / np.linalg.norm(other)
            off = float(np.sqrt(2 * max(0.0, 1 - cosine)))
    return errors, off


def run(options: Options) -> Iterator[Claim]:
    """Each set's errors; then the averages and their order."""
    results: dict[str, dict[str, np.ndarray]] = {}
    for name in SETS[:2] if options.quick else SETS:
        if not available(name):
            yield Claim(name, "—", "—", "missing", "it is read from STREAM_DR_DATA")
            continue
        X, y = load(name)
        keep = split(y, min(1.0, LARGEST / len(y)), 7)[0]
        runs, folds = (1, 1) if options.quick else (10, 3) if len(keep) <= 600 else (3, 2)
        results[name] = _over([one_split(X[keep], y[keep], i, folds) for i in range(runs)])
        print(f"{name}: {_told(results[name])}", flush=True)
    yield from _averages(results)
    if options.pictures:
        _draw(results, str(options.pictures))
        head = ("set", "method", "split", "error in %")
        save_numbers(options.pictures, "lecture_table", head, numbered_values(results))
    pictures = "the extract names no set and gives no figure of one"
    yield Claim("which sets, and their errors", "two pictures", f"{len(results)} of UCI's", "missing", pictures)
    wide: dict[str, dict[str, np.ndarray]] = {}
    for name in () if options.quick else WIDE:
        given = wide_rows(name)
        if given is None:
            yield Claim(name, "—", "—", "missing", "it is read from STREAM_DR_DATA")
            continue
        X, y = given
        found = [one_wide_split(X, y, i, 1) for i in range(3)]
        wide[name] = _over([errors for errors, _ in found])
        print(f"{name}, {X.shape[1]:,} features: {_told(wide[name])}", flush=True)
        far = max(off for _, off in found)
        told = f"{far:.0e} rad from it"
        agrees = identity(far**2 / 2)  # one less the cosine
        compared = "the first component, beside the exact one on linear landmarks"
        yield Claim(f"{name}: WMV past 4,096 features, refined", "its eigenvector", told, agrees, compared)
    if wide:
        yield from _order("high-dimensional data", wide, HIGH)


def _over(found: list[dict[str, float]]) -> dict[str, np.ndarray]:
    return {method: np.array([errors[method] for errors in found]) for method in found[0]}


def _told(errors: dict[str, np.ndarray]) -> str:
    return ", ".join(f"{m} {e.mean():.1f} ± {e.std():.1f}" for m, e in errors.items())


def _averages(results: dict[str, dict[str, np.ndarray]]) -> Iterator[Claim]:
    yield from _order("sets of UCI", results, LECTURE)
    means = {name: {m: float(e.mean()) for m, e in errors.items()} for name, errors in results.items()}
    wins = {m: sum(e[m] == min(e[o] for o in LECTURE) for e in means.values()) for m in LECTURE}
    either = sum(min(e["WMV"], e["weighted MMC"]) <= min(e["PCA"], e["none"]) for e in means.values())
    yield Claim(
        "sets on which a method is best (ties count)",
        "WMV 9, weighted MMC 7, so one of them 16 of 20",
        ", ".join(f"{m} {n}" for m, n in wins.items()) + f"; one of the two {either} of {len(results)}",
        within(Interval(either / len(results), *binomtest(either, len(results)).proportion_ci()), 0.5, 1.0),
        "other sets, so that one of the two is best on most is compared",
    )
    if "isolet part" in means:
        isolet, means_of = results["isolet part"], means["isolet part"]
        old, new = means_of["WMV, α/β ≥ −4"], means_of["WMV"]
        told = f"{old:.1f} % without, {new:.1f} % with it"
        agrees = order(isolet["WMV, α/β ≥ −4"] - isolet["WMV"], TEST_SHARE)
        yield Claim(
            "isolet part: a grid with α/β = 1 − 2c, MMC", "MMC is a case of WMV", told, agrees, "26 classes: −51"
        )
    k = np.mean([e["weighted MMC, k-NN"] - e["weighted MMC"] for e in means.values()])
    told = f"{k:+.2f} % of error on average"
    yield Claim("k of k-NN by cross-validation, not 1", "high accuracy", told, "not told")


def _order(what: str, results: dict[str, dict[str, np.ndarray]], paper: dict[str, float]) -> Iterator[Claim]:
    """Averages over other sets are no target: their order is."""
    averages = {
        m: float(np.mean([errors[m].mean() for errors in results.values()])) for m in next(iter(results.values()))
    }
    told = ", ".join(f"{m} {averages[m]:.1f}" for m in paper)
    learned = [m for m in paper if m not in ("PCA", "none")]
    by_set = [{m: e.mean() for m, e in errors.items()} for errors in results.values()]
    lead = [np.mean([e[o] - e[m] for m in learned for o in ("PCA", "none")]) for e in by_set]
    of_pca = np.array([e["none"] - e["PCA"] for e in by_set])
    yield Claim(
        f"{what}: average error in % over {len(results)}",
        ", ".join(f"{m} {value}" for m, value in paper.items()),
        told,
        order(np.array(lead), 0.0),
        f"other sets, so the order is compared: {' and '.join(learned)} before PCA and none",
    )
    yield Claim(
        f"{what}: PCA against none",
        f"{paper['PCA'] - paper['none']:+.1f} %",
        f"{averages['PCA'] - averages['none']:+.1f} %",
        order(of_pca, 0.0),
        "PCA with all columns is none, so the choice of their number decides"
        + (
            f": with the number that is best on the test part it were {averages[KNOWN]:.1f} %"
            if KNOWN in averages
            else ""
        ),
    )


def _draw(results: dict[str, dict[str, np.ndarray]], folder: str) -> None:
    picture, axes = figure(1, 1, 8.0, 3.2)
    axis, width = axes[0, 0], 0.2
    for i, method in enumerate(LECTURE):
        values = [errors[method] for errors in results.values()]
        at = np.arange(len(results)) + (i - 1.5) * width
        axis.bar(
            at, [v.mean() for v in values], width, yerr=[v.std() for v in values], label=method, error_kw={"lw": 0.7}
        )
    axis.set_xticks(np.arange(len(results)), list(results), rotation=40, ha="right", fontsize=8)
    axis.set(ylabel="error of 1-NN in %")
    axis.legend(fontsize=8)
    save(picture, folder, "lecture_table")
