"""Files of saved estimators that are nearly right, of every estimator and feature map, are used or refused: the short forms
of `python -m tests.campaigns.saved`, in loaders of their own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


def tried(runs: int, done: Path) -> dict[str, float]:
    command = [
        sys.executable,
        "-m",
        "tests.campaigns.saved",
        "--runs",
        str(runs),
        "--seed",
        "0",
        "--resume",
        str(done),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[3], check=False)
    assert ended.returncode == 0, ended
    counts: dict[str, float] = json.loads(done.read_text())["counts"]
    assert counts["refused"] > runs / 2
    assert counts["used"] > runs / 20
    return counts


@pytest.mark.every_run
def test_mutants_are_used_or_refused(tmp_path: Path) -> None:
    tried(300, tmp_path / "done")


@pytest.mark.test_all
def test_more_mutants_are_used_or_refused(tmp_path: Path) -> None:
    tried(2_000, tmp_path / "done")
