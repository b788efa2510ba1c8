"""The wheel and the sdist: both are built, and the wheel installs into a new environment and learns there."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.test_all


def run(*command: str | Path, cwd: Path) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "STREAM_DR"))}
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def test_the_wheel_has_all_files_and_learns_in_a_new_environment(tmp_path: Path) -> None:
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path, ROOT, cwd=tmp_path)
    (sdist,), (wheel,) = tmp_path.glob("*.tar.gz"), tmp_path.glob("*.whl")
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert {"README.md", "LICENSE", "CHANGELOG.md", "stream_dr/py.typed", "service/app.py", "pyproject.toml"} <= held
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    tracked = run("git", "ls-files", "stream_dr", "service", cwd=ROOT).split()
    assert set(tracked) <= packed

    run(sys.executable, "-m", "venv", "env", cwd=tmp_path)
    python = tmp_path / "env" / "bin" / "python"
    # The packages of this environment stand behind those of the new one. Downloading them takes minutes, and
    # tests/test_imports.py compares what is imported with what is declared.
    (packages,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    (packages / "behind.pth").write_text(sysconfig.get_path("purelib"))
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", wheel, cwd=tmp_path)
    (tmp_path / "rows.csv").write_text("a,b,y\n" + "1,2,u\n2,1,u\n5,6,v\n6,5,v\n" * 5)
    learn = ["learn", "rows.csv", "--label", "y", "--dir", "D", "--model", "lda=lda", "-o", "projected.csv"]
    run(python.with_name("stream-dr"), *learn, cwd=tmp_path)
    assert len((tmp_path / "projected.csv").read_text().splitlines()) == 21
    where = run(python, "-c", "import stream_dr; print(stream_dr.__file__)", cwd=tmp_path)
    assert str(tmp_path) in where
