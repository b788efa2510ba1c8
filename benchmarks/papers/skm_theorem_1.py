"""SKM paper, theorem 1: which of the constraints (a)-(d) the weights (13) satisfy, and what their normaliser M does.

A row of class l weighs class j by e(l, j) = (a − p_l) / M if j = l, else p_j / M; p are the classes' shares. The theorem
has (a) to (d) at once for a ≥ 1. (c) wants each row's weights to sum to 1, hence M = a + 1 − 2 p_l, which differs from class
to class; the paper's step to (14) wants one M for all.
"""

from collections.abc import Iterator

import numpy as np

from benchmarks.papers.claims import Claim, Options
from benchmarks.papers.sets import available, load
from benchmarks.papers.verdicts import Interval, count, within
from stream_dr import SKM

SETS = ("iris", "wine", "ionosphere", "letter")
DEGREES = 1.0
"""Angle within which two projections are the same."""
CONSTRAINTS = {
    "a": "weights of other classes rise with their share",
    "b": "the own class's weight falls with its share",
    "c": "no weight below 0, sum 1",
    "d": "the own class weighs at least as much as all others",
}


def weights(shares: np.ndarray, own: int, a: float, *, row_sums: bool = False) -> np.ndarray:
    """(classes,) weights (13) of a row of class `own`; M = 1, or what makes them sum to 1."""
    e = shares.copy()
    e[own] = a - shares[own]
    return e / e.sum() if row_sums else e


def holds(
    constraint: str, shares: np.ndarray, other: np.ndarray, own: int, a: float, *, row_sums: bool = False
) -> bool:
    """Whether a constraint holds for a row of class `own` with these shares; (b) compares them with `other` shares."""
    e = weights(shares, own, a, row_sums=row_sums)
    rest = np.delete(e, own)
    if constraint == "a":
        return bool((np.diff(rest[np.argsort(np.delete(shares, own))]) >= 0).all())
    if constraint == "b":
        change = weights(other, own, a, row_sums=row_sums)[own] - e[own]
        return bool(change * (other[own] - shares[own]) <= 1e-12)
    if constraint == "c":
        return bool((e >= 0).all() and np.isclose(e.sum(), 1.0))
    return bool(e[own] >= rest.sum() - 1e-12)


def criterion(X: np.ndarray, y: np.ndarray, a: float, *, row_sums: bool = False) -> np.ndarray:
    """S_c (features, features) of (11) with these weights."""
    labels, counts = np.unique(y, return_counts=True)
    means = np.stack([X[y == label].mean(axis=0) for label in labels])
    S = np.zeros((X.shape[1], X.shape[1]))
    for own, label in enumerate(labels):
        e = weights(counts / len(y), own, a, row_sums=row_sums)
        for j, mean in enumerate(means):
            apart = X[y == label] - mean
            S += (-e[j] if j == own else e[j]) * (apart.T @ apart) / len(y)
    return S


def run(options: Options) -> Iterator[Claim]:
    """A claim a constraint, and one a set on what M does to the projection."""
    rng, draws = np.random.default_rng(0), 100 if options.quick else 2_000
    cases = [_drawn(rng) for _ in range(draws)]
    for name, words in CONSTRAINTS.items():
        one = sum(holds(name, *case) for case in cases)
        own = sum(holds(name, *case, row_sums=True) for case in cases)
        ours = f"{one} of {draws} draws with one M, {own} with each class's own"
        verdict = count((one, own), (draws, draws))
        reason = (
            ""
            if verdict == "agrees"
            else "(b) needs one M, (c) each class's own: for a > 1 and unequal shares not both"
        )
        yield Claim(f"({name}) {words}", "always", ours, verdict, reason)
    for name in SETS:
        if available(name):
            yield _effect(name)


def _drawn(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, int, float]:
    """Two vectors of shares, a class, and a ≥ 1."""
    classes = int(rng.integers(2, 8))
    return (
        rng.dirichlet(np.ones(classes)),
        rng.dirichlet(np.ones(classes)),
        int(rng.integers(classes)),
        1 + rng.exponential(),
    )


def _effect(name: str) -> Claim:
    X, y = load(name)
    p = min(2, len(np.unique(y)) - 1)
    one, own = (np.linalg.eigh(criterion(X, y, 3.0, row_sums=row_sums))[1][:, -p:] for row_sums in (False, True))
    ours = SKM(p, a=3.0).fit(X, y).components_.T
    angle, apart = _angle(one, own), _angle(one, ours)
    what = f"{name}: M leaves the projection as it is (a = 3, {p} columns)"
    told = f"each class's own M turns it by {angle:.2f}°; SKM here is that of one M to {apart:.0e}°"
    verdict = within(Interval(angle, angle, angle), 0.0, DEGREES)
    return Claim(what, "yes, a constant", told, verdict, "" if verdict == "agrees" else _shares(y))


def _shares(y: np.ndarray) -> str:
    counts = np.unique(y, return_counts=True)[1] / len(y)
    return f"the classes' shares are {counts.min():.2f} … {counts.max():.2f}; with equal ones every M is the same"


def _angle(A: np.ndarray, B: np.ndarray) -> float:
    """Largest angle of two subspaces, in degrees."""
    sine = np.linalg.norm(B - A @ (A.T @ B), 2)
    return float(np.degrees(np.arcsin(min(sine, 1.0))))
