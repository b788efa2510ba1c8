"""How many files of ours a POST, a GET and a replay enter, as `python -m benchmarks.journeys` counts them."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.test_all

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("journey", ["post", "get", "replay"])
def test_a_journey_enters_no_more_files_than_its_bar(journey: str) -> None:
    command = [sys.executable, "-m", "benchmarks.journeys", journey, "--list"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert ended.returncode == 0, ended.stdout + ended.stderr
