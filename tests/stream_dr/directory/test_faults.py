"""Single faults on directories, the short form of `python -m tests.campaigns.faults`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.test_all
def test_a_fault_is_named_repaired_or_harmless(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "tests.campaigns.faults",
        "--runs",
        "150",
        "--seed",
        "7",
        "--resume",
        str(tmp_path / "done"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout
    counts: dict[str, int] = {}
    for line in (tmp_path / "done").read_text().splitlines():
        for name, number in json.loads(line)["counts"].items():
            counts[name] = counts.get(name, 0) + number
    assert sum(counts.values()) == 150
    assert min(counts["named"], counts["repaired"], counts["harmless"]) > 5
