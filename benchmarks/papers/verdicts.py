"""Rules of verdicts: one function for each kind of claim.

Every rule takes what was measured and numbers that were stated before measuring. A rule answers
with a word. `not told` (the paper does not say what was done) and `missing` (the data cannot be
had) are set by the caller.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from scipy.stats import binomtest, linregress

Decision = Literal["agrees", "differs", "undecided"]

SPLITS = 10
"""Number of splits of a comparison, fixed before measuring."""
TIMINGS = 5
"""Number of timings of which the median is taken."""
ERRORS = 2.0
"""Number of standard errors on either side of an interval."""
CHANCE = 0.05
"""Share of true claims that differ by chance at this number of standard errors."""
IDENTITY = 1e-8
"""Margin of an identity, relative."""
POINT = 0.01
"""Margin of equal error rates: one point."""
SMALLEST_GAP = 1e-8
"""Relative gap of eigenvalues below which their eigenvectors get no verdict."""


class Interval(NamedTuple):
    """Mean and the ends of its interval."""

    mean: float
    low: float
    high: float


def paired_interval(differences: np.ndarray, test_share: float) -> Interval:
    """Return the interval of a mean paired difference.

    - differences: (splits,) or (splits, dimensions), averaged over the dimensions. A dimension
      that is NaN in some split is left out.
    - test_share: n_test / n_train. Training parts of random splits overlap, so the standard
      error is sd·√(1/splits + n_test/n_train).
    """
    by_split = differences
    if differences.ndim == 2:
        by_split = differences[:, ~np.isnan(differences).any(axis=0)].mean(axis=1)
    error = by_split.std(ddof=1) * np.sqrt(1 / len(by_split) + test_share)
    mean = float(by_split.mean())
    return Interval(mean, float(mean - ERRORS * error), float(mean + ERRORS * error))


def plotted_figure(
    gap: float, sd: float, reading: float, claimed: float, *, splits: int = SPLITS, paper_splits: int = SPLITS
) -> Decision:
    """Judge a figure that was read off a plot.

    - gap: our figure less the paper's. sd: our standard deviation over splits.
    - reading: error of reading the plot.
    - claimed: difference that the paper claims there. A wider band decides nothing.
    """
    band = ERRORS * sd * np.sqrt(1 / splits + 1 / paper_splits) + reading
    if band > claimed:
        return "undecided"
    return "agrees" if abs(gap) <= band else "differs"


def within(interval: Interval, low: float, high: float) -> Decision:
    """Judge whether the whole interval lies in a range stated beforehand."""
    if low <= interval.low and interval.high <= high:
        return "agrees"
    return "differs" if interval.high < low or high < interval.low else "undecided"


def order(differences: np.ndarray, test_share: float) -> Decision:
    """Judge the claim that paired differences are above 0."""
    return within(paired_interval(differences, test_share), np.nextafter(0.0, 1.0), np.inf)


def order_range(axis: Sequence[int], differences: np.ndarray, test_share: float) -> str:
    """Return where on the axis an order holds, as words.

    differences: (splits, points of the axis). A point that is NaN in some split is left out. The
    order holds at a point if the differences there, taken alone, are above 0.
    """
    measured = np.flatnonzero(~np.isnan(differences).any(axis=0))
    words = {axis[at]: order(differences[:, at], test_share) for at in measured}
    parts = []
    for word, told in (("agrees", "holds"), ("undecided", "is open"), ("differs", "fails")):
        points = [str(point) for point, found in words.items() if found == word]
        if points:
            parts.append(f"{told} at {', '.join(points)}")
    return "; ".join(parts)


def equal(differences: np.ndarray, test_share: float, margin: float = POINT) -> Decision:
    """Judge the claim that paired differences are 0, within a margin."""
    return within(paired_interval(differences, test_share), -margin, margin)


def identity(relative: float, margin: float = IDENTITY) -> Decision:
    """Judge an identity by its relative error."""
    return "agrees" if abs(relative) <= margin else "differs"


def eigenvectors(relative: float, eigenvalues: np.ndarray, count: int, margin: float = IDENTITY) -> Decision:
    """Judge the first eigenvectors by their relative error, if the gaps of their eigenvalues are open."""
    values = np.sort(np.abs(eigenvalues))[::-1]
    gaps = -np.diff(values)[:count] / values[0]
    return identity(relative, margin) if (gaps >= SMALLEST_GAP).all() else "undecided"


def speed(ratios: Sequence[float], low: float, high: float = np.inf) -> Decision:
    """Judge a speed-up by the median of the ratios timed at one of the paper's sizes."""
    return "agrees" if low <= np.median(ratios) <= high else "differs"


def slope_interval(sizes: Sequence[float], seconds: np.ndarray) -> Interval:
    """Return the slope of log time against log size; seconds (sizes, timings)."""
    repeated = np.repeat(np.log(sizes), seconds.shape[1])
    fit = linregress(repeated, np.log(seconds).ravel())
    return Interval(fit.slope, fit.slope - ERRORS * fit.stderr, fit.slope + ERRORS * fit.stderr)


def growth(sizes: Sequence[float], seconds: np.ndarray, low: float, high: float) -> Decision:
    """Judge whether time grows with an exponent in a range stated beforehand."""
    return within(slope_interval(sizes, seconds), low, high)


def fewer_errors(wrong: np.ndarray, other: np.ndarray) -> Decision:
    """Judge on one fixed split that a method errs less often (McNemar's exact test).

    wrong, other: True where the method, and the other one, errs on a test row.
    """
    better, worse = int((other & ~wrong).sum()), int((wrong & ~other).sum())
    if better + worse == 0 or binomtest(better, better + worse).pvalue > CHANCE:
        return "undecided"
    return "agrees" if better > worse else "differs"


def together(words: Iterable[Decision]) -> Decision:
    """Return the verdict of a claim that has several parts: all of them must agree."""
    found = set(words)
    return "differs" if "differs" in found else "undecided" if "undecided" in found else "agrees"


def count(ours: object, paper: object) -> Decision:
    """Judge a count, a shape or a yes and no, which must be the paper's."""
    return "agrees" if ours == paper else "differs"
