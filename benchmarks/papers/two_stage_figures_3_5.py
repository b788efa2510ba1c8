"""Two-stage paper, figures 3 to 5: time against rows n and features d, direct and two-stage, at γ = 1.

Figure 3: LDA on news20, tf-idf, 20 classes. Figures 4 and 5: CCA, OPLS and HSL; the paper's rcv1v2 rows
are not to be had: generated rows (`stream_dr.datasets.generate.generate_rcv1_like`) with the 101 commonest of
their labels. The d features are those that most rows have. The paper does not say which γ it timed.
`two_stage_gammas` has the ratio at three of them.

Processor time on one core, from rows in memory to W: the direct approach as the paper has it (Cholesky
factor, Lanczos); the two stages with LSQR to 1e-6, a column after the other; ours from one pass with
all of Cxx (up to 4,096 features), and ours from one pass and refine to 1e-5. LSQR is timed several
times, the others once.
"""

import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from benchmarks.papers.claims import Claim, Options
from benchmarks.papers.drawing import figure, save, save_numbers
from benchmarks.papers.sets import available, load
from benchmarks.papers.two_stage_methods import (
    MULTILABEL,
    by_lanczos,
    by_lsqr,
    difference,
    ours,
    right,
    targets,
)
from benchmarks.papers.two_stage_table_1 import indicator
from benchmarks.papers.verdicts import Interval, count, growth, slope_interval
from stream_dr.datasets.generate import generate_rcv1_like

GAMMA = 1.0
REPEATS = 3
"""Number of timings of LSQR, of which the slope has its interval."""
GROWTH = (-np.inf, 1.25)
"""Exponents of a time that grows at most linearly."""
WAYS = ("direct", "LSQR", "one pass, exact", "refine")


class Timed(NamedTuple):
    """Timings of one way at one size.

    - passes: number of times the rows were read (0: not counted).
    - apart: ‖WWᵀ − W0W0ᵀ‖ / ‖W0W0ᵀ‖ of the answer and the direct one.
    - timings: seconds of each run.
    """

    passes: int
    apart: float
    timings: tuple[float, ...]

    @property
    def seconds(self) -> float:
        """Median of the timings."""
        return float(np.median(self.timings))


Times = dict[tuple[int, int], dict[str, Timed]]
"""(n, d) → way → what was measured."""


def news20(n: int, d: int) -> tuple[sp.csr_matrix, np.ndarray]:
    """n rows drawn with a fixed seed, tf-idf of unit length, and Y (n, 20)."""
    from sklearn.feature_extraction.text import TfidfTransformer

    X, y = load("news20")
    order = np.random.default_rng(0).permutation(len(y))[:n]
    return _commonest(TfidfTransformer().fit_transform(X[order]), d), indicator(y[order])


def generated(n: int, d: int) -> tuple[sp.csr_matrix, np.ndarray]:
    """Return the first n generated rows, and their labels (n, 101)."""
    X, Y = _all_generated()
    return _commonest(X[:n], d), Y[:n]


@cache
def _all_generated(k: int = 101) -> tuple[sp.csr_matrix, np.ndarray]:
    """Return 3,000 generated rows and Y (3,000, k) of their k commonest labels."""
    blocks = list(generate_rcv1_like(3000))
    names = sorted({name for b in blocks for name in b.y.labels})
    Y = np.array([[name in labels for name in names] for b in blocks for labels in b.y.targets_by_row()], dtype=float)
    Y = Y[:, np.sort(np.argsort(-Y.sum(axis=0), kind="stable")[:k])]
    return sp.vstack([b.X for b in blocks], format="csr"), Y


def _commonest(X: sp.csr_matrix, d: int) -> sp.csr_matrix:
    there = np.bincount(X.indices, minlength=X.shape[1])
    return X[:, np.sort(np.argsort(-there, kind="stable")[:d])].tocsr()


def solvers(method: str, X: sp.csr_matrix, Y: np.ndarray) -> dict[str, Callable[[], tuple[np.ndarray, int]]]:
    """Way → W and passes over the rows, the direct approach first."""
    H, y = right(method, Y), targets(method, Y)

    def one_pass() -> tuple[np.ndarray, int]:
        return ours(method, GAMMA, scatter="exact").fit(X, y).components_.T, 1

    def refined() -> tuple[np.ndarray, int]:
        learned = ours(method, GAMMA, scatter="diagonal").fit(X, y).refine((X, y), tol=1e-5, max_passes=100)
        return learned.components_.T, 1 + len(learned.refine_report_.passes)

    ways: dict[str, Callable[[], tuple[np.ndarray, int]]] = {
        "direct": lambda: (by_lanczos(X, H, GAMMA), 0),
        "LSQR": lambda: by_lsqr(X, H, GAMMA, tol=1e-6),
        "refine": refined,
    }
    return ways | ({"one pass, exact": one_pass} if X.shape[1] <= 4096 else {})


def timed(method: str, X: sp.csr_matrix, Y: np.ndarray) -> dict[str, Timed]:
    """All ways."""
    result, W0 = {}, np.zeros((0, 0))
    for way, solve in solvers(method, X, Y).items():
        timings = []
        for _ in range(REPEATS if way == "LSQR" else 1):
            began = time.process_time()
            W, passes = solve()
            timings.append(time.process_time() - began)
        W0 = W if way == "direct" else W0
        result[way] = Timed(passes, difference(W0, W)[1], tuple(timings))
    return result


def sweep(method: str, rows: Callable[[int, int], Any], points: list[tuple[int, int]]) -> Times:
    """All ways at all (n, d), printed."""
    found = {}
    for n, d in points:
        found[n, d] = timed(method, *rows(n, d))
        told = ", ".join(f"{way} {found[n, d][way].seconds:.2f} s" for way in WAYS if way in found[n, d])
        print(f"{method:10s} n {n:,} d {d:,}: {told}", flush=True)
    return found


def run(options: Options) -> Iterator[Claim]:
    """Yield for each method the times at the paper's largest size, and the growth with n and with d."""
    with threadpool_limits(1):
        results = measured(options)
    yield Claim("rcv1v2 (figures 4, 5)", "n 3,000, d to 5,000, k 101", "none", "missing", "generated rows, below")
    if not available("news20"):
        yield Claim(
            "news20 (figure 3)", "log seconds, in a picture", "none", "missing", "news20 is not in STREAM_DR_DATA"
        )
    for what, (at_n, at_d) in results.items():
        yield from _claims(what, at_n, at_d)
    yield _crossing([at_d for _, at_d in results.values()])
    if options.pictures:
        _draw(results, options)
        head = ("what", "n", "d", "way", "seconds", "passes", "apart")
        save_numbers(options.pictures, "two_stage_figures_3_5", head, _numbers(results))


def measured(options: Options) -> dict[str, tuple[Times, Times]]:
    """What → times against n and against d."""
    timed("OPLS", sp.random(30, 9, 0.5, "csr", random_state=0), np.eye(3)[np.arange(30) % 3])  # numba compiles here
    ns, ds, d = ([300, 600], [200, 300], 400) if options.quick else ([500, 1500, 3000], [500, 1000, 2000, 4000], 5000)
    results = {}
    if available("news20"):
        at_n = sweep("LDA", news20, [(n, d) for n in ns])
        results["LDA, news20, k = 20"] = at_n, sweep("LDA", news20, [(ns[-1] * 5 // 3, v) for v in ds])
    for method in MULTILABEL[:1] if options.quick else MULTILABEL:
        at_n = sweep(method, generated, [(n, d) for n in ns])
        at_d = sweep(method, generated, [(ns[-1], v) for v in ds]) | {(ns[-1], d): at_n[ns[-1], d]}
        results[f"{method}, generated rows, k = 101"] = at_n, at_d
    return results


def _claims(what: str, at_n: Times, at_d: Times) -> Iterator[Claim]:
    (n, d), found = list(at_n.items())[-1]
    told = ", ".join(f"{way} {t.seconds:.2f} s" for way, t in found.items())
    apart = max(t.apart for times in (at_n, at_d) for f in times.values() for t in f.values())
    yield Claim(
        f"{what}: seconds at n = {n:,}, d = {d:,}, γ = 1",
        "curves of log seconds, γ not said",
        told,
        "not told",
        f"LSQR reads the rows up to {found['LSQR'].passes} times for each column of H, refine "
        f"{found['refine'].passes} times for all. All answers agree to {apart:.0e}. Ratios: `two_stage_gammas`.",
    )
    direct = _slope(at_d, 1, "direct").mean
    for letter, times, axis in (("n", at_n, 0), ("d", at_d, 1)):
        mean, low, high = _slope(times, axis, "LSQR")
        yield Claim(
            f"{what}: time of the two stages grows as {letter}^a, γ = 1",
            "at most linearly",
            f"a = {mean:.2f} ({low:.2f} … {high:.2f})",
            growth(*_curve(times, axis, "LSQR"), *GROWTH),
            "" if axis == 0 else f"a part of the time is each call's own; the direct approach: d^{direct:.1f}",
        )


def _crossing(sweeps: list[Times]) -> Claim:
    """Tell from which d on the two stages are the faster."""
    first = min(d for _, d in sweeps[0])
    faster = [
        min((d for (_, d), f in times.items() if f["LSQR"].seconds < f["direct"].seconds), default=np.inf)
        for times in sweeps
    ]
    return Claim(
        "all of these: smallest d measured at which the two stages are the faster, γ = 1",
        f"{first:,} (“similar observations”)",
        " to ".join(f"{d:,}" for d in sorted({min(faster), max(faster)})),
        count(max(faster), first),
        "at d = 500 the two stages have no less to do: k·N·(3n + 5d + 2z) multiplications in N iterations of LSQR [2S §3.2] "
        "are some 2e8, d³/3 and 2k Lanczos products of d² no more, and those of dense rows are the quicker ones.",
    )


def _curve(times: Times, axis: int, way: str) -> tuple[list[int], np.ndarray]:
    """Return the sizes and the seconds (sizes, timings)."""
    return [point[axis] for point in times], np.array([found[way].timings for found in times.values()])


def _slope(times: Times, axis: int, way: str) -> Interval:
    return slope_interval(*_curve(times, axis, way))


def _numbers(results: dict[str, tuple[Times, Times]]) -> Iterator[tuple[object, ...]]:
    """Yield a row for each way at each size."""
    for what, both in results.items():
        for (n, d), found in (both[0] | both[1]).items():
            yield from ((what, n, d, way, t.seconds, t.passes, t.apart) for way, t in found.items())


def _draw(results: dict[str, tuple[Times, Times]], options: Options) -> None:
    picture, axes = figure(2, len(results), 2.2, 2.1)
    for column, (what, both) in enumerate(results.items()):
        for axis, times, place in zip(axes[:, column], both, (0, 1), strict=True):
            for way in WAYS:
                points = {point[place]: found[way].seconds for point, found in times.items() if way in found}
                axis.plot(points.keys(), points.values(), marker="o", ms=3, label=way)
            other = next(iter(times))[1 - place]
            axis.set(
                yscale="log", ylim=(0.01, 10), xlabel=f"{'nd'[place]} ({'dn'[place]} = {other:,})", ylabel="seconds"
            )
            axis.set_title(what, fontsize=6)
            axis.tick_params(which="both", labelsize=6)
    axes[0, 1].legend(fontsize=5, loc="lower right", ncols=2)
    save(picture, str(options.pictures), "two_stage_figures_3_5")
