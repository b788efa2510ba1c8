"""The board of limits names what has fallen, and its rows run."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from benchmarks.limits import COMMITTED, Row, board, fallen, rows

ROOT = Path(__file__).parents[1]


def test_a_row_below_three_quarters_of_what_was_committed_is_named() -> None:
    committed = {"a": 0.8, "b": 0.8, "gone": 1.0}
    assert fallen({"a": 0.59, "b": 0.61, "new": 0.01}, committed) == ["a"]


@pytest.mark.parametrize(("ratios", "named"), [([0.5, 0.55], ["a"]), ([0.5, 0.7], []), ([0.7], [])])
def test_it_is_measured_twice_before_it_is_named(ratios: list[float], named: list[str]) -> None:
    left = iter(ratios)
    committed = {"a": 0.8}
    found = board([Row("a", 1, 1, "x", lambda row: None)], committed, lambda row: next(left))
    assert fallen(found, committed) == named
    assert next(left, None) is None


def test_every_row_has_a_committed_ratio_and_a_name_of_its_own() -> None:
    names = [row.name for row in rows()]
    assert len(set(names)) == len(names)
    assert set(tomllib.loads(COMMITTED.read_text())["ratio"]) == set(names)
    assert {row.kind for row in rows()} == {"quick", "", "slow"}


def test_it_prints_one_table() -> None:
    command = [sys.executable, "-m", "benchmarks.limits", "--only", "read Arrow"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, 1), done.stderr  # the machine may be at work
    lines = done.stdout.splitlines()
    assert any(line.startswith("openblas") for line in lines)
    assert lines[-1].startswith("read Arrow 1,000 × 384")
