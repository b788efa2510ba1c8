"""Two-stage paper, figures 4 and 5: the same as `two_stage_gammas`, CCA on generated rows of 101 labels."""

from collections.abc import Iterator

from benchmarks.papers.claims import Claim, Options
from benchmarks.papers.two_stage_figures_3_5 import generated
from benchmarks.papers.two_stage_gammas import claims


def run(options: Options) -> Iterator[Claim]:
    """Yield a claim for each γ, and write the seconds where asked."""
    yield from claims("two_stage_gammas_cca", "CCA, generated rows, k = 101", "CCA", generated, options)
