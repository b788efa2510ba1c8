"""What pages name is there, and every block is of a language that is checked; other tests follow the pages."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.pages import LANGUAGES, PAGES, ROOT


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_is_of_a_language_that_is_checked_and_a_skipped_one_says_why(page: Path) -> None:
    text = page.read_text(encoding="utf8")
    fences = re.findall(r"^```([^\n]*)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    assert {language for language, _ in fences} <= LANGUAGES
    for language, block in fences:
        if language in ("json", "toml"):
            (json if language == "json" else tomllib).loads(block)
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
