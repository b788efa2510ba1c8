"""Load from many connections, and SIGTERM under it: the short form of `python -m tests.campaigns.soak`."""

import subprocess
import sys

import pytest

from tests.support.serving import ROOT


@pytest.mark.test_all
def test_nothing_goes_wrong_under_load(tmp_path):
    command = [sys.executable, "-m", "tests.campaigns.soak", "--runs", "20", "--resume", str(tmp_path / "done")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout
