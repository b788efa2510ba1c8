"""Load from many connections, and SIGTERM under it: the short form of `python -m benchmarks.soak`."""

import subprocess
import sys

import pytest

from tests.service.serving import ROOT


@pytest.mark.test_all
def test_nothing_goes_wrong_under_load(tmp_path):
    command = [sys.executable, "-m", "benchmarks.soak", "--runs", "20", "--resume", str(tmp_path / "done")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout
