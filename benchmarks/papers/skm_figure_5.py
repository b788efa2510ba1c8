"""SKM paper, figure 5: nearest-neighbour error against the subspace's dimension for SKM, PCA and LDA.

Features as they come; random halves of the distinct rows, mean over them; SKM is the mean of a = 1, 2, 3, as in the paper
(a = 1 has no direction past classes − 1: there of 2 and 3); 1-NN, where the paper names no k. Isolet: 1,560 of the 7,797
rows. Where the order differs from the paper's, it is measured again on standardised features, which do not depend on the
units they came in.
"""

import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from benchmarks.papers.claims import Claim, Options
from benchmarks.papers.drawing import figure, save
from benchmarks.papers.sets import available, error, halves, load, split
from stream_dr import LDA, PCA, SKM, errors

SETS = {
    "iris": (1, 2, 3),
    "isolet part": (1, 2, 5, 10, 15, 20, 25, 30),
    "wine": (1, 2, 4, 6, 8, 10),
    "letter": (2, 4, 6, 8, 10),
    "monks-1": (1, 2, 3),
    "monks-2": (1, 2, 3),
    "monks-3": (1, 2, 3),
    "bupa": (1, 2, 3, 4, 5, 6),
}
METHODS: dict[str, list[Any]] = {"SKM": [SKM(30, a=a) for a in (1.0, 2.0, 3.0)], "PCA": [PCA()], "LDA": [LDA()]}
RANGES = {"wine": (26, 36), "monks-1": (15, 25)}
"""The paper's axes of error in %, where they are narrow. Its 556 rows of Monk's problem are monks-1's."""
Errors = dict[str, np.ndarray]
"""(halves, dimensions) of each method, NaN where it has not so many directions."""


class Case(NamedTuple):
    """A set's rows and labels, its halves, and the dimensions looked at."""

    X: np.ndarray
    y: np.ndarray
    parts: list[tuple[np.ndarray, np.ndarray]]
    dimensions: tuple[int, ...]

    def errors(self, models: list[Any], standardised: bool = False) -> np.ndarray:
        """(halves, dimensions) error, mean of the models that have so many directions, NaN where none has."""
        found = np.full((len(models), len(self.parts), len(self.dimensions)), np.nan)
        for half, (a, b) in enumerate(self.parts):
            spread = self.X[a].std(axis=0) if standardised else np.ones(self.X.shape[1])
            X = self.X / np.where(spread > 0, spread, 1.0)
            for number, model in enumerate(models):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", errors.FewerComponents)
                    Z, W = model.fit(X[a], self.y[a]).transform(X[a]), model.transform(X[b])
                for at, p in enumerate(self.dimensions):
                    if p <= Z.shape[1]:
                        found[number, half, at] = error(Z[:, :p], self.y[a], W[:, :p], self.y[b])
        there = ~np.isnan(found)
        return np.where(there.any(axis=0), np.nansum(found, axis=0) / np.maximum(there.sum(axis=0), 1), np.nan)


def run(options: Options) -> Iterator[Claim]:
    """Claims by set; the picture where asked."""
    results = {}
    for name in SETS:
        if not available(name):
            yield Claim(f"{name}: error", "—", "—", "missing", "it is read from STREAM_DR_DATA")
            continue
        case = _case(name, options.quick)
        results[name] = {method: case.errors(models) for method, models in METHODS.items()}
        _print(name, results[name])
        yield from _bupa(case, results[name]) if name == "bupa" else _claims(name, case, results[name])
    if options.pictures:
        _draw(results, str(options.pictures))


def _case(name: str, quick: bool) -> Case:
    X, y = load(name)
    if quick:
        few = split(y, min(1.0, 200 / len(y)), 3)[0]
        X, y = X[few], y[few]
    runs = 1 if quick else 2 if len(y) > 10_000 else 4 if len(y) > 1_000 else 10
    return Case(X, y, [halves(X, run) for run in range(runs)], SETS[name])


def _print(name: str, found: Errors) -> None:
    print(f"\n{name:12s}" + "".join(f"{p:13d}" for p in SETS[name]))
    for method, values in found.items():
        told = [f"{100 * m:6.1f} ± {100 * s:4.1f}" for m, s in zip(values.mean(0), values.std(0), strict=True)]
        print(f"  {method:10s}" + "".join(told).replace("nan", "  —"), flush=True)


def _claims(name: str, case: Case, found: Errors) -> Iterator[Claim]:
    for method in ("SKM", "LDA"):
        above = method == "LDA" and name == "letter"
        ahead, told = _ahead(found[method], found["PCA"])
        agrees, reason = ahead != above, ""
        if not agrees and above:
            leads = 100 * (found["LDA"] - found["PCA"]).mean(axis=0)
            told_leads = ", ".join(f"{lead:+.1f}" for lead in leads)
            reason = (
                f"the two cross: at {', '.join(map(str, case.dimensions))} dimensions LDA has {told_leads} points more"
            )
        elif not agrees:
            ahead, again = _ahead(case.errors(METHODS[method], True), case.errors(METHODS["PCA"], True))
            reason = f"on standardised features: {again}" + (". The features' units decide the order" if ahead else "")
        paper = f"{'above' if above else 'below'} at most dimensions"
        yield Claim(f"{name}: {method} against PCA", paper, told, "agrees" if agrees else "differs", reason)
    if name in RANGES:
        yield _range(name, case, found)


def _range(name: str, case: Case, found: Errors) -> Claim:
    """Whether errors are on the paper's axis."""
    least, most = RANGES[name]
    means = np.concatenate([values.mean(axis=0) for values in found.values()]) * 100
    if name == "wine":
        reason = (
            f"scikit-learn's LDA has ours to {100 * _beside_scikit_learn(case, found):.2f} %; right singular vectors of "
            f"Sw⁻¹ Sb in the place of its eigenvectors have {_span(case.errors([_Singular()]), 'errors of')}, and the paper "
            "speaks of the SVD where eigenvectors are meant"
        )
    else:
        mixed = case._replace(parts=[split(case.y, 0.5, run) for run in range(len(case.parts))])
        told = ", ".join(_span(mixed.errors(models), method) for method, models in METHODS.items())
        reason = (
            f"with halves of all {len(case.y)} rows, of which 432 are distinct, a row's twin is its neighbour: {told}"
        )
    agrees = bool(((means >= least) & (means <= most) | np.isnan(means)).all())
    told = ", ".join(_span(values, method) for method, values in found.items())
    return Claim(
        f"{name}: errors", f"{least} … {most} %", told, "agrees" if agrees else "differs", "" if agrees else reason
    )


def _span(errors: np.ndarray, method: str) -> str:
    means = 100 * errors.mean(axis=0)
    return f"{method} {np.nanmin(means):.0f} … {np.nanmax(means):.0f} %"


def _ahead(found: np.ndarray, pca: np.ndarray) -> tuple[bool, str]:
    """Whether a method's error is below PCA's at most dimensions that it has; in words."""
    has = ~np.isnan(found).any(axis=0)
    lead = pca[:, has] - found[:, has]
    below = int((lead.mean(axis=0) > 0).sum())
    each = int(((lead > 0).sum(axis=1) * 2 > has.sum()).sum())
    means = f"{100 * found[:, has].mean():.1f} % against {100 * pca[:, has].mean():.1f} %"
    told = f"below at {below} of {has.sum()} dimensions, {means}"
    return below * 2 > has.sum(), f"{told}; in {each} of {len(lead)} halves alone below at most of them"


def _beside_scikit_learn(case: Case, found: Errors) -> float:
    """Largest difference of LDA's error from that of scikit-learn's."""
    theirs = case.errors([LinearDiscriminantAnalysis()])
    return float(np.nanmax(np.abs(theirs - found["LDA"])))


class _Singular:
    """LDA as a slip would have it: the right singular vectors of Sw⁻¹ Sb, which is not symmetric."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> "_Singular":
        """Learn the vectors."""
        labels, codes = np.unique(y, return_inverse=True)
        means = np.stack([X[y == label].mean(axis=0) for label in labels])[codes]
        within, between = (part.T @ part for part in (X - means, means - X.mean(axis=0)))
        self.vectors = np.linalg.svd(np.linalg.solve(within, between))[2][: len(labels) - 1].T
        return self

    def transform(self, X: np.ndarray) -> np.ndarray:
        """(rows, classes − 1)"""
        return X @ self.vectors


def _bupa(case: Case, found: Errors) -> Iterator[Claim]:
    drinks = case.X[:, -1] > 5
    other = Case(case.X[:, :-1], drinks, case.parts, (1, 2, 3, 4, 5))
    by_drinks = ", ".join(_span(other.errors(models), method) for method, models in METHODS.items())
    ours = ", ".join(_span(values, method) for method, values in found.items())
    guess = 100 * (1 - np.unique(case.y, return_counts=True)[1].max() / len(case.y))
    yield Claim(
        "bupa: error",
        "16 … 22 %",
        f"{ours}, guessing {guess:.0f} %",
        "missing",
        "the paper's label is unknown: it counts 6 classes and 2 features, which the file has the other way round. The "
        "last column, the only one with two values, is the donors' split into two parts and no diagnosis; with 'more than "
        f"5 drinks' as label and the 5 blood tests as features: {by_drinks}, guessing {100 * drinks.mean():.0f} %",
    )


def _draw(results: dict[str, Errors], folder: str) -> None:
    picture, axes = figure(2, 4, 2.7, 2.4)
    for axis, (name, result) in zip(axes.flat, results.items(), strict=False):
        for method, values in result.items():
            axis.errorbar(SETS[name], values.mean(0), values.std(0), marker="o", ms=3, lw=1, capsize=2, label=method)
        axis.set(title=name, xlabel="dimension", ylabel="1-NN error", ylim=(0, None))
    axes[0, 0].legend(fontsize=7)
    for axis in axes.flat[len(results) :]:
        axis.axis("off")
    save(picture, folder, "skm_figure_5")
