"""The wheel and the sdist: both are made, and the wheel installs into an empty environment and runs the demo there."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = [pytest.mark.test_all, pytest.mark.timeout(900)]


def run(*command: str | Path, cwd: Path) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "STREAM_DR"))}
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def test_the_wheel_runs_the_demo_in_an_empty_environment(tmp_path: Path) -> None:
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path, ROOT, cwd=tmp_path)
    (sdist,), (wheel,) = tmp_path.glob("*.tar.gz"), tmp_path.glob("*.whl")
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert {"README.md", "LICENSE", "CHANGELOG.md", "stream_dr/py.typed", "service/app.py", "pyproject.toml"} <= held
    run(sys.executable, "-m", "venv", "env", cwd=tmp_path)
    python = tmp_path / "env" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel, cwd=tmp_path)
    table = run(python.with_name("stream-dr"), "demo", "--exit", "--port", "0", cwd=tmp_path)
    assert "lda" in table
    where = run(python, "-c", "import stream_dr; print(stream_dr.__file__)", cwd=tmp_path)
    assert str(tmp_path) in where
