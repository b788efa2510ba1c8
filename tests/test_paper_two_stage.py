"""The two-stage paper's tables and figures run from end to end at tiny sizes."""

from types import ModuleType

import pytest

from benchmarks.papers import (
    sets,
    two_stage_figure_1,
    two_stage_figure_2,
    two_stage_figures_3_5,
    two_stage_table_1,
    two_stage_table_2,
)
from benchmarks.papers.claims import Options


def verdicts(module: ModuleType) -> dict[str, str]:
    """Verdict by claim."""
    return {claim.what: claim.verdict for claim in module.run(Options(quick=True))}


def test_table_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STREAM_DR_DATA", raising=False)
    found = verdicts(two_stage_table_1)
    assert len(found) == 13
    assert {name for name, verdict in found.items() if verdict == "agrees"} == {"Syn1", "Syn2", "Syn3", "Syn4", "wine"}


def test_table_2() -> None:
    found = verdicts(two_stage_table_2)
    assert found["wine, LDA"] == "agrees"
    assert found["exact from one pass, largest ‖WWᵀ − W0W0ᵀ‖ / ‖W0W0ᵀ‖"] == "agrees"


def test_figure_2() -> None:
    assert list(verdicts(two_stage_figure_2).values()) == ["agrees", "not told"]


@pytest.mark.test_all
def test_figure_1(monkeypatch: pytest.MonkeyPatch) -> None:
    if sets.available("yeast"):
        assert set(verdicts(two_stage_figure_1).values()) == {"agrees", "not told"}
    monkeypatch.delenv("STREAM_DR_DATA", raising=False)
    assert verdicts(two_stage_figure_1) == {"AUC on yeast": "missing"}


@pytest.mark.test_all
def test_figures_3_to_5_have_the_same_answer_from_every_way() -> None:
    results = two_stage_figures_3_5.measured(Options(quick=True))
    for both in results.values():
        for times in both:
            assert all(timed.apart < 1e-4 for found in times.values() for timed in found.values())
