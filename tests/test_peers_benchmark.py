"""`python -m benchmarks.peers` runs from end to end on the digits that come with scikit-learn."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.peers import measure, page, tasks
from benchmarks.peers.__main__ import main
from benchmarks.peers.methods import METHODS, QUICK, reason_to_skip

PAGE = Path(__file__).parents[1] / "docs" / "where-it-pays.md"


def figures_by_method(shown: str) -> dict[str, list[str]]:
    """Return the figures of the first table, by method."""
    lines = re.findall(r"^\| (.+) \|$", shown.partition("5-NN / recall")[0], flags=re.MULTILINE)
    rows = [line.split(" | ") for line in lines]
    return {row[0]: row[1:] for row in rows if row[0] in METHODS}


def test_the_quick_form_prints_figures_of_each_method(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--quick"])
    shown = capsys.readouterr().out
    figures = figures_by_method(shown)
    assert tuple(figures) == QUICK
    assert figures["LDA"][:2] == ["9", "36"]
    for name in ("LDA", "PCA", "scikit-learn LDA"):
        nearest, linear, same, recall = map(float, figures[name][4:])
        assert min(nearest, linear, same) > 0.9
        assert 0.2 < recall < 0.9
    assert float(figures["SGDClassifier, all features"][5]) > 0.8
    assert float(figures["PCA"][7]) > float(figures["LDA"][7])
    assert "Licence: CC BY 4.0" in shown


def test_a_set_that_is_not_here_is_skipped(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("STREAM_DR_DATA", raising=False)
    main(["--only", "USPS"])
    assert "USPS: skipped. USPS: set STREAM_DR_DATA to the folder" in capsys.readouterr().out


def test_methods_say_what_they_do_not_take() -> None:
    X = np.eye(12)
    labels = np.eye(3)[np.arange(12) % 3]
    task = tasks.Task(X, labels, X, labels, tasks.nearest(X, X))
    assert reason_to_skip(METHODS["LDA"], task) == "takes one label a row"
    assert reason_to_skip(METHODS["PLSDA"], task) is None


def test_figures_of_neighbours_follow_their_definitions() -> None:
    y = np.array(["a", "a", "b", "b"])
    places = np.array([[0, 1, 2], [2, 3, 1]])
    truth = np.array(["a", "a"])
    assert measure.vote(y, places).tolist() == ["a", "b"]
    assert measure.same_label(y, truth, places) == pytest.approx((2 + 1) / 6)
    assert measure.recall(places, np.array([[0, 1, 2], [0, 1, 3]])) == pytest.approx((3 + 2) / 6)
    sets_of_labels = np.array([[1, 1, 0], [0, 0, 1]])
    assert measure.same_label(sets_of_labels, sets_of_labels[:1], np.array([[0, 1]])) == pytest.approx(0.5)


def test_a_written_section_replaces_the_one_of_its_set(tmp_path: Path) -> None:
    (tmp_path / "where-it-pays.md").write_text(PAGE.read_text(encoding="utf8"), encoding="utf8")
    figures: dict[str, dict[str, Any]] = {
        "LDA": {"numbers": 9, "bytes": 36, "linear": 0.5},
        "PCA": {"skipped": "a reason"},
    }
    page.write({"digits": page.Result((10, 64), 5, 10, 3, figures)}, tmp_path)
    text = (tmp_path / "where-it-pays.md").read_text(encoding="utf8")
    digits = text.partition("<!-- peers: digits -->")[2].partition("<!-- end of peers -->")[0]
    assert "| LDA | 9 | 36 | – | – | – | 0.500 | – | – |" in digits
    assert "Skipped: PCA: a reason." in digits
    for name in tasks.SOURCES:
        assert text.count(f"<!-- peers: {name} -->") == 1


def test_figures_in_the_words_are_those_of_the_tables() -> None:
    text = PAGE.read_text(encoding="utf8")
    advice = text.partition("## Take something else")[2].partition("\n## ")[0]
    readme = (PAGE.parents[1] / "README.md").read_text(encoding="utf8")
    advice += readme.partition("**Take something else**")[2].partition("\n## ")[0]
    measured = set(re.findall(r"\d\.\d{3}", text.partition("\n## Tables")[2]))
    named = re.findall(r"\d\.\d{3}", advice)
    assert len(named) >= 8
    assert set(named) <= measured
