"""The suite's time budget and order, tried on small suites that have the same conftest.py."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.test_all

CONFTEST = Path(__file__).with_name("conftest.py")
PLAIN = "def test_first():\n    pass\n\n\ndef test_second():\n    pass\n"
# The first test ends the budget of its worker, so that nothing depends on how fast workers start.
ENDING = """
from conftest import deadline_key


def test_first(pytestconfig):
    pytestconfig.stash[deadline_key] = 0


def test_second():
    pass
"""
MARKED = "import pytest\n\n\ndef test_last():\n    pass\n\n\n@pytest.mark.every_run\ndef test_first():\n    pass\n"


def run(folder: Path, files: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    shutil.copy(CONFTEST, folder)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = every_run\n")
    for name, text in files.items():
        (folder / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-v", "-rs", "-p", "no:cacheprovider", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize(("workers", "skipped"), [("0", 3), ("2", 2)])
def test_tests_that_start_too_late_are_skipped_and_counted(tmp_path: Path, workers: str, skipped: int) -> None:
    files = {f"test_{name}.py": ENDING for name in "ab"}
    done = run(tmp_path, files, "-n", workers, "--dist", "loadfile", "--budget", "90")
    assert done.returncode == 0, done.stdout
    assert f"{4 - skipped} passed, {skipped} skipped" in done.stdout
    assert f"{skipped} tests skipped: over the time budget of 90 s" in done.stdout


def test_workers_receive_the_deadline(tmp_path: Path) -> None:
    done = run(tmp_path, {f"test_{name}.py": PLAIN for name in "ab"}, "-n", "2", "--budget", "0")
    assert "4 tests skipped: over the time budget of 0 s" in done.stdout


def test_without_a_budget_everything_runs(tmp_path: Path) -> None:
    done = run(tmp_path, {"test_a.py": PLAIN}, "-n", "0", "--budget", "")
    assert "2 passed" in done.stdout
    assert "over the time budget" not in done.stdout


def test_files_of_every_run_come_first_and_the_others_as_drawn(tmp_path: Path) -> None:
    files = {f"test_{name}.py": PLAIN for name in "abcdef"} | {"test_z.py": MARKED}
    orders = []
    for seed in ("1", "1", "2"):
        done = run(tmp_path, files, "-n", "0", "--order", seed)
        names = [line.split()[0] for line in done.stdout.splitlines() if "::" in line]
        assert names[:2] == ["test_z.py::test_first", "test_z.py::test_last"]
        orders.append(names)
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2])
