"""What pages name is there, and every block is of a language that is checked; other tests follow the pages."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import FrameType

import numpy as np
import pytest
import yaml

import stream_dr
from stream_dr.estimators.fitting.closed_form import ClosedForm
from tests.support.pages import LANGUAGES, PAGES, ROOT

LOADERS = {"json": json.loads, "toml": tomllib.loads, "yaml": yaml.safe_load}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_is_of_a_language_that_is_checked_and_a_skipped_one_says_why(page: Path) -> None:
    text = page.read_text(encoding="utf8")
    fences = re.findall(r"^```([^\n]*)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    assert {language for language, _ in fences} <= LANGUAGES
    for language, block in fences:
        if language in LOADERS:
            LOADERS[language](block)
    for skipped in re.findall(r"<!--+ *skip: *(?:next|start)(.*?)-->", text):
        assert re.search(r'"[^"]{10,}"', skipped), skipped


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_of_ours_that_a_page_names_is_there(page: Path) -> None:
    named = re.findall(
        r"`((?:stream_dr|service|docs|tests|benchmarks)(?:/[\w.]+)*(?:/|\.py|\.md))`", page.read_text("utf8")
    )
    assert [name for name in named if not (ROOT / name).exists() and name != "stream_dr/estimators/loudest.py"] == []


@pytest.mark.test_all
@pytest.mark.parametrize(("journey", "heading"), [("post", "## Files of a POST"), ("replay", "## Files of a replay")])
def test_a_journey_enters_the_files_that_its_table_names(journey: str, heading: str) -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf8")
    table = page.partition(heading)[2].partition("\n\nA query")[0].partition("\n\nAfter a kill")[0]
    listed = [sys.executable, "-m", "benchmarks.journeys", journey, "--list"]
    done = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, timeout=120)
    entered = set(re.findall(r"^ +(\S+\.py):", done.stdout, flags=re.MULTILINE))
    assert len(entered) > 30
    assert set(re.findall(r"`([\w/]+\.py)`", table)) <= entered


def _architecture_section(heading: str) -> str:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf8")
    return page.partition(heading)[2].partition("\n## ")[0]


def test_the_diagram_of_fit_and_solve_is_in_the_order_in_which_methods_are_called() -> None:
    named = re.findall(
        r"^ +([A-Z]\w+\.\w+)(?: |$)", _architecture_section("## How an estimator fits and solves"), re.MULTILINE
    )
    assert len(named) > 15
    X = np.random.default_rng(0).normal(size=(20, 3))
    y = np.repeat(["a", "b"], 10)
    called: list[str] = []

    def note_call(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            called.append(frame.f_code.co_qualname)

    lda = stream_dr.LDA()
    previous = sys.getprofile()
    sys.setprofile(note_call)
    try:
        lda.fit(X, y)
        lda.components_  # noqa: B018
    finally:
        sys.setprofile(previous)
    first_calls = list(dict.fromkeys(name for name in called if name in named))
    assert first_calls == named


def test_the_table_of_overridden_methods_names_the_classes_that_define_them() -> None:
    section = _architecture_section("## How an estimator fits and solves")
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\| ([\w, ]+) \|$", section, re.MULTILINE)
    assert len(rows) > 10
    kinds = {base for kind in stream_dr.ESTIMATORS.values() for base in kind.__mro__ if issubclass(base, ClosedForm)}
    for method, classes in rows:
        # The class that first declares the method does not override it.
        defined = {
            kind.__name__
            for kind in kinds
            if method in vars(kind) and any(hasattr(base, method) for base in kind.__bases__)
        }
        assert ", ".join(sorted(defined)) == classes, method


def test_ten_files_are_named_for_the_tour() -> None:
    section = _architecture_section("## Read these ten files")
    assert len(re.findall(r"^\d+\. `[\w/]+\.py`", section, re.MULTILINE)) == 10
