"""SKM paper: passes that the recurrence needs on 20 classes of text, with equal weights and with more for recent rows.

The paper measures figure 3 on four classes, in one pass. Here are the 20 classes of news20 as unit-norm tf-idf
rows, 11,314 documents before a date and 7,532 after it. A document gets the class of the nearest class mean in
19 dimensions at a = 1. The share of right ones is compared with that of SKM, the closed form, in five orders of
the rows. SKM's 19 dimensions contain all differences of the class means. So it must be as right as the means in
all features.
"""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.neighbors import NearestCentroid

from benchmarks.papers.claims import Claim, Options
from benchmarks.papers.drawing import save_numbers
from benchmarks.papers.sets import Set, available, news20_parts, split
from benchmarks.papers.verdicts import count, equal, paired_interval
from stream_dr import SKM, IncrementalSKM

AMNESIC = (0.0, 1.0)
PASSES = (1, 2, 5, 20)
ORDERS = 5
"""Number of orders of the rows."""
DIMENSIONS = 19


def run(options: Options) -> Iterator[Claim]:
    """Yield a claim for each number of passes and each amnesic."""
    if not available("news20"):
        yield Claim("news20, 20 classes", "—", "—", "missing", "it is read from STREAM_DR_DATA")
        return
    (X, y), test = news20_parts()
    if options.quick:
        few = split(y, 1_000 / len(y), 0)[0]
        X, y = X[few], y[few]
    orders = range(2 if options.quick else ORDERS)
    passes = PASSES[: 2 if options.quick else None]

    closed = _accuracy(SKM(DIMENSIONS).fit(X, y), (X, y), test)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # some words are in no document of a class
        means = float(NearestCentroid().fit(X, y).score(*test))
    what = f"SKM in {DIMENSIONS} dimensions, and the class means in all {X.shape[1]:,}"
    yield Claim(what, "the same", f"{closed:.3f}, {means:.3f}", count(round(closed, 3), round(means, 3)))

    numbers: list[tuple[object, ...]] = [("SKM", "", "", "", closed), ("class means", "", "", "", means)]
    for amnesic in AMNESIC:
        found = np.array([_curve((X, y), test, amnesic, order, passes) for order in orders])
        for number, values in zip(passes, found.T, strict=True):
            yield _claim(f"ISKM, amnesic {amnesic:g}, passes: {number}", values, closed)
            numbers += [("ISKM", amnesic, number, order, value) for order, value in enumerate(values.tolist())]
    if options.pictures:
        save_numbers(options.pictures, "skm_news20", ("method", "amnesic", "passes", "order", "share right"), numbers)


def _curve(train: Set, test: Set, amnesic: float, seed: int, passes: tuple[int, ...]) -> list[float]:
    """Return the share of right documents after each number of passes; each pass has its own order."""
    X, y = train
    rng = np.random.default_rng(seed)
    model = IncrementalSKM(DIMENSIONS, keep="all", amnesic=amnesic)
    shares = []
    for number in range(1, passes[-1] + 1):
        order = rng.permutation(len(y))
        model.partial_fit(X[order], y[order])
        if number in passes:
            shares.append(_accuracy(model, train, test))
    return shares


def _accuracy(model: Any, train: Set, test: Set) -> float:
    """Return the share of test rows whose nearest class mean, projected, is their own."""
    nearest = NearestCentroid().fit(model.transform(train[0]), train[1])
    return float(nearest.score(model.transform(test[0]), test[1]))


def _claim(what: str, values: np.ndarray, closed: float) -> Claim:
    """Judge whether the recurrence is as right as the closed form, over orders of the rows."""
    interval = paired_interval(values, 0.0)
    ours = f"{interval.mean:.3f} ({interval.low:.3f} … {interval.high:.3f}), SKM {closed:.3f}"
    return Claim(what, "converges very fast", ours, equal(values - closed, 0.0))
