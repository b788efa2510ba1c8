"""Mutated files of saved estimators do no harm: a short form of `python -m benchmarks.fuzz_saved`."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("runs", [150, pytest.param(2_000, marks=pytest.mark.test_all)])
def test_mutants_are_refused_or_can_be_used(runs: int, tmp_path: Path) -> None:
    """Every mutant is loaded in a process of its own: a crash is counted, and the next goes on."""
    command = [sys.executable, "-m", "benchmarks.fuzz_saved", "--runs", str(runs), "--seed", "20261123"]
    ended = subprocess.run([*command, "--keep", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert ended.returncode == 0, ended.stdout + ended.stderr
