"""The memory of learning a file is flat in its size: eight times the rows, the same peak."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

ROWS, TIMES = 100_000, 8
GROWTH = (TIMES - 1) * ROWS * 20 * 8
"""Bytes that the further rows take as numbers, were they held."""
LEARN = [sys.executable, "-m", "stream_dr", "learn", "--label", "y", "--model", "lda=lda", "--dir"]
FIT = "import stream_dr, sys; stream_dr.fit(stream_dr.LDA(), sys.argv[1], label='y', progress=False)"


def write(path: Path, times: int) -> Path:
    """The same rows of 20 numbers and a class, several times."""
    X = np.random.default_rng(0).normal(size=(ROWS // 10, 20))
    rows = "".join("".join(f"{v:.6f}," for v in x) + ("up\n" if x[0] > 0 else "down\n") for x in X)
    with path.open("w") as file:
        file.write(",".join([f"c{j}" for j in range(20)]) + ",y\n")
        file.writelines([rows] * 10 * times)
    return path


def peak(command: list[object]) -> int:
    """The most memory of its own that a process had, in bytes; pages of files that it maps are the system's."""
    most = 0
    with subprocess.Popen(
        [str(part) for part in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as child:
        while child.poll() is None:
            said = Path(f"/proc/{child.pid}/status").read_text().partition("RssAnon:")[2]
            most = max(most, int(said.split()[0]) * 1024 if said else 0)
            with suppress(subprocess.TimeoutExpired):
                child.wait(0.01)
    assert child.returncode == 0
    return most


@pytest.mark.test_all
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize("way", ["learn", "fit"])
def test_eight_times_the_rows_take_the_same_memory(tmp_path: Path, way: str) -> None:
    peaks = []
    for times in (1, TIMES):
        file = write(tmp_path / f"{times}.csv", times)
        command = [*LEARN, tmp_path / f"d{times}", file] if way == "learn" else [sys.executable, "-c", FIT, file]
        peaks.append(peak(command))
    assert peaks[1] - peaks[0] < 0.6 * GROWTH, peaks
