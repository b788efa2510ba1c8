"""The board of limits names rows that have fallen, and its rows run."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.limits import (
    BLAS_LIMITS,
    COMMITTED,
    Committed,
    Row,
    board,
    fallen,
    judged,
    read_committed,
    rows,
    write_committed,
)

ROOT = Path(__file__).parents[1]


def row(name: str, limit: str = "GaussianNB") -> Row:
    return Row(name, 1, 1, limit, lambda row: None)


def test_a_row_below_three_quarters_of_its_limit_is_named() -> None:
    assert fallen({"a": 0.59, "b": 0.61, "new": 0.01}, {"a": 0.8, "b": 0.8, "gone": 1.0}) == ["a"]


@pytest.mark.parametrize(("ratios", "named"), [([0.5, 0.55], ["a"]), ([0.5, 0.7], []), ([0.7], [])])
def test_it_is_measured_twice_before_it_is_named(ratios: list[float], named: list[str]) -> None:
    remaining = iter(ratios)
    committed = Committed("Haswell", {"a": 0.8})
    result = board([row("a")], committed, "Haswell", lambda row: next(remaining))
    assert fallen(result, committed.ratios) == named
    assert next(remaining, None) is None


def test_rows_against_blas_are_judged_on_their_own_machine_only(capsys: pytest.CaptureFixture[str]) -> None:
    committed = Committed("Haswell", {"blas": 0.8, "python": 0.8, "gone": 0.8})
    rows = [row("blas", "X.T@X"), row("python")]
    assert judged(rows, committed, "Haswell") == {"blas": 0.8, "python": 0.8}
    assert judged(rows, committed, "Zen") == {"python": 0.8}
    calls: list[str] = []
    board(rows, committed, "Zen", lambda row: calls.append(row.name) or 0.1)
    assert calls == ["blas", "python", "python"]
    lines = capsys.readouterr().out.splitlines()
    assert [line.endswith("not judged here") for line in lines[1:]] == [True, False]


def test_an_update_on_another_machine_drops_the_ratios_of_the_first(tmp_path: Path) -> None:
    path, python = tmp_path / "limits.toml", "LDA dense d=20"
    write_committed(path, Committed("Haswell", {"LDA dense d=784": 0.7, python: 0.4}), "Zen", {"LDA dense d=64": 0.2})
    assert read_committed(path) == Committed("Zen", {python: 0.4, "LDA dense d=64": 0.2})


def test_every_row_has_a_committed_ratio_and_a_name_of_its_own() -> None:
    names = [row.name for row in rows()]
    assert len(set(names)) == len(names)
    committed = read_committed(COMMITTED)
    assert committed.machine
    assert set(committed.ratios) == set(names)
    assert {row.kind for row in rows()} == {"quick", "", "slow"}
    assert {row.limit for row in rows()} >= set(BLAS_LIMITS)


def test_it_prints_one_table() -> None:
    command = [sys.executable, "-m", "benchmarks.limits", "--only", "read Arrow"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, 1), done.stderr  # the machine may be at work
    lines = done.stdout.splitlines()
    assert any(line.startswith("openblas") for line in lines)
    assert lines[-1].startswith("read Arrow 1,000 × 384")
