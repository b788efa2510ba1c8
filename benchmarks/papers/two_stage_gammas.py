"""Two-stage paper, figure 3: how much longer the direct approach takes, at three values of γ.

The paper says that the two stages take significantly less time, and not which γ it timed. The smaller
γ, the more iterations LSQR needs. Rows, ways and sizes are those of `two_stage_figures_3_5`: LDA on
n = 3,000 rows and d = 5,000 features of news20. Processor time on one core.
"""

import time
from collections.abc import Callable, Iterator

import numpy as np
from scipy.sparse import csr_matrix
from threadpoolctl import threadpool_limits

from benchmarks.papers.claims import Claim, Options
from benchmarks.papers.drawing import save_numbers
from benchmarks.papers.sets import available
from benchmarks.papers.two_stage_figures_3_5 import news20
from benchmarks.papers.two_stage_methods import by_lanczos, by_lsqr, right
from benchmarks.papers.verdicts import TIMINGS, speed

GAMMAS = (1.0, 1e-2, 1e-4)
LEAST = 2.0
"""Smallest ratio that is "significantly less" time."""
Rows = Callable[[int, int], tuple[csr_matrix, np.ndarray]]
"""Takes n and d and returns rows and labels."""


def run(options: Options) -> Iterator[Claim]:
    """Yield a claim for each γ, and write the seconds where asked."""
    if not available("news20"):
        yield Claim("LDA, news20: direct / two-stage time", "significantly less", "none", "missing", "no data")
        return
    yield from claims("two_stage_gammas", "LDA, news20, k = 20", "LDA", news20, options)


def claims(name: str, what: str, method: str, rows: Rows, options: Options) -> Iterator[Claim]:
    """Yield a claim for each γ of one method, and write the seconds as `name`.csv where asked."""
    n, d = (300, 400) if options.quick else (3_000, 5_000)
    numbers: list[tuple[object, ...]] = []
    X, Y = rows(n, d)
    H = right(method, Y)
    for gamma in GAMMAS:
        with threadpool_limits(1):
            seconds = np.array([_timed(X, H, gamma) for _ in range(2 if options.quick else TIMINGS)])
        ratios = seconds[:, 0] / seconds[:, 1]
        numbers += [(what, n, d, gamma, run, *pair) for run, pair in enumerate(seconds.tolist())]
        direct, lsqr = np.median(seconds, axis=0)
        print(f"{what}, γ = {gamma:g}: direct {direct:.2f} s, LSQR {lsqr:.2f} s", flush=True)
        yield Claim(
            f"{what}, γ = {gamma:g}: direct / two-stage time at n = {n:,}, d = {d:,}",
            f"significantly less, γ not said (at least {LEAST:g} agrees)",
            f"{np.median(ratios):.2f} ({ratios.min():.2f} … {ratios.max():.2f})",
            speed(ratios.tolist(), LEAST),
            f"direct {direct:.2f} s, LSQR {lsqr:.2f} s, medians of {len(seconds)}",
        )
    if options.pictures:
        head = ("what", "n", "d", "gamma", "run", "direct seconds", "LSQR seconds")
        save_numbers(options.pictures, name, head, numbers)


def _timed(X: object, H: np.ndarray, gamma: float) -> tuple[float, float]:
    """Return the seconds of the direct approach and of the two stages by LSQR."""
    start = time.process_time()
    by_lanczos(X, H, gamma)
    middle = time.process_time()
    by_lsqr(X, H, gamma, tol=1e-6)
    return middle - start, time.process_time() - middle
