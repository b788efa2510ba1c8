"""Python ends in order while Arrow's thread reads a file ahead."""

import subprocess
import sys
from pathlib import Path

import pytest

ENDS = """
import io, sys, time
from stream_dr.datasets.readers import csv, jsonl
from stream_dr.datasets.readers.columns import Roles
from stream_dr.errors import MalformedInput

class SlowFile(io.BytesIO):
    def read(self, size=-1):
        time.sleep(float(sys.argv[2]))
        return super().read(size)

path = sys.argv[1]
content = open(path, "rb").read()
csv.open_bytes = jsonl.open_bytes = lambda path: SlowFile(content)
try:
    blocks = (csv.read_csv if path.endswith("csv") else jsonl.read_jsonl)(path, Roles(label="y"))
    next(blocks)
except MalformedInput:
    sys.exit(3)
sys.exit(4)
"""
CSV, JSON = ("a,y\n", "0.5,1\n", "1,2,3\n"), ("", '{"a": 0.5, "y": 1}\n', '{"a": "b", "y": 1}\n')


@pytest.mark.test_all
@pytest.mark.parametrize("status", [3, 4], ids=["error in the first piece", "left suspended"])
@pytest.mark.parametrize(("suffix", "parts"), [("csv", CSV), ("jsonl", JSON)])
def test_python_ends_in_order_wherever_the_thread_is(
    tmp_path: Path, suffix: str, parts: tuple[str, str, str], status: int
) -> None:
    head, row, bad = parts
    rows = [row] * 100_000
    if status == 3:
        rows[10] = bad
    path = tmp_path / f"a.{suffix}"
    path.write_text(head + "".join(rows))
    for seconds in [0.001, 0.02, 0.1, 0.25]:  # ends at different places of the thread's reading
        command = [sys.executable, "-c", ENDS, str(path), str(seconds)]
        child = subprocess.run(command, timeout=30, capture_output=True, text=True)
        assert child.returncode == status, child.stderr
