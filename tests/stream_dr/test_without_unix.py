"""The library without what only Unix has, as on Windows: it fits, saves, loads and writes shards."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Runs first in the new process, so that no module has seen what is taken away.
TAKE_AWAY = """
import os, shutil, sys, types
statvfs = os.statvfs
for name in ("fcntl", "resource", "uvloop"):
    sys.modules[name] = None
for name in ("O_DIRECTORY", "O_CLOEXEC", "O_NONBLOCK", "fdatasync", "statvfs", "pread", "pwrite", "sched_getaffinity"):
    delattr(os, name)

open_on_unix = os.open

def open_file(path, *args, **options):
    if os.path.isdir(path):
        raise PermissionError(13, "Permission denied", path)
    return open_on_unix(path, *args, **options)

os.open = open_file

# Windows has the function, and asks the system in its own way.
shutil.disk_usage = lambda path: types.SimpleNamespace(free=statvfs(path).f_bavail * statvfs(path).f_frsize)

import numpy as np
import stream_dr

X = np.random.default_rng(0).normal(size=(40, 5))
y = ["a", "b"] * 20
"""


def run_without_unix(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run code after TAKE_AWAY in a folder."""
    command = [sys.executable, "-W", "error", "-c", TAKE_AWAY + code]
    return subprocess.run(command, cwd=folder, env=os.environ, capture_output=True, text=True, timeout=100)


def test_it_fits_transforms_saves_and_loads(tmp_path: Path) -> None:
    done = run_without_unix(
        """
lda = stream_dr.LDA().fit(X, y)
lda.save("lda.safetensors")
lda.save("lda.safetensors")
assert os.listdir() == ["lda.safetensors"]
assert np.array_equal(stream_dr.load("lda.safetensors").transform(X), lda.transform(X))
""",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.test_all
def test_it_writes_and_learns_shards(tmp_path: Path) -> None:
    done = run_without_unix(
        """
np.savez("rows.npz", X=X, y=np.array(y))
from stream_dr.cli import main
try:
    main(["convert", "rows.npz", "--out", "shards"])
except SystemExit as e:
    assert not e.code
assert sorted(os.listdir("shards")) == ["manifest.json", "part-00000.arrow"]
learned = stream_dr.fit(stream_dr.LDA(), "shards")
assert np.allclose(learned.transform(X), stream_dr.LDA().fit(X, y).transform(X))
""",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.test_all
@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("stream_dr.Directory('D')", "OSError: this system lacks the file locks that a directory needs. Use Linux"),
        ("stream_dr.Directory('D', writable=False)", "OSError: this system lacks the file locks"),
        ("import service.serve", "the service needs Linux or macOS"),
    ],
)
def test_directories_and_the_service_say_what_they_need(code: str, message: str, tmp_path: Path) -> None:
    done = run_without_unix(code, tmp_path)
    assert done.returncode == 1
    assert message in done.stderr.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []
