"""What the service refuses to start with, and what it says then."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import stream_dr
from tests.support.serving import ROOT, Process, arrow

X = np.random.default_rng(2).normal(size=(50, 4))
Y = ["ab"[i % 2] for i in range(50)]


def refuses(tmp_path: Path, **environment: str) -> str:
    """What `python -m service` says on its way out."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("STREAM_DR_")}
    told = clean | {"STREAM_DR_DIR": str(tmp_path), "STREAM_DR_PORT": "0"} | environment
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "service"], env=told, cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1, done.stderr
    assert time.monotonic() - begun < 30
    return done.stderr


@pytest.mark.test_all
def test_an_open_address_without_a_token(tmp_path: Path) -> None:
    assert "no token is set" in refuses(tmp_path, STREAM_DR_HOST="0.0.0.0")
    assert not (tmp_path / "log").exists()


@pytest.mark.test_all
def test_more_than_one_worker(tmp_path: Path) -> None:
    assert "WEB_CONCURRENCY" in refuses(tmp_path, WEB_CONCURRENCY="4")


@pytest.mark.test_all
def test_a_bad_setting(tmp_path: Path) -> None:
    assert "max_lag" in refuses(tmp_path, STREAM_DR_MAX_LAG="-1").lower()


@pytest.mark.test_all
@pytest.mark.parametrize(
    ("command", "variable"),
    [
        (["service"], "STREAM_DR_WRITE_TOKEN=hush123"),
        (["service"], "STREAM_DR_MAX_LAG=few"),
        (["stream_dr.cli", "serve", "--dir", "d"], "WEB_CONCURRENCY=4"),
        (["stream_dr.cli", "serve", "--dir", "d"], "STREAM_DR_WRITE_TOKEN=hush123"),
        (["stream_dr.cli", "demo"], "STREAM_DR_MAX_LAG=few"),
    ],
)
def test_every_way_to_serve_tells_a_bad_setting_in_one_line(tmp_path: Path, command: list[str], variable: str) -> None:
    told = os.environ | {"PYTHONPATH": str(ROOT)} | dict([variable.split("=")])
    done = subprocess.run(
        [sys.executable, "-m", *command], env=told, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    *_, last = done.stderr.strip().splitlines()
    assert done.returncode == 1, done.stderr
    assert last.startswith("error (settings): ")
    assert "Traceback" not in done.stderr
    assert "hush123" not in done.stderr


@pytest.mark.test_all
def test_help_does_not_serve(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "service", "--help"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0
    assert "STREAM_DR_" in done.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.test_all
@pytest.mark.parametrize(("log_level", "lines"), [("info", 1), ("error", 0)])
def test_what_is_told_while_the_directory_opens_is_logged_as_all_else(
    tmp_path: Path, log_level: str, lines: int
) -> None:
    with stream_dr.Directory(tmp_path) as directory:
        directory.add_model("lda", "lda", {})
        directory.append([stream_dr.rows_draft(arrow(X, Y))])
    passed_over = tmp_path / "snapshots" / "lda.1" / f"{0:020d}.safetensors"
    passed_over.parent.mkdir(parents=True)
    passed_over.write_bytes(b"no snapshot")
    process = Process(tmp_path, log_level=log_level)
    assert process.stop() == 0
    told = [line for line in process.said.splitlines() if "passed over" in line]
    assert len(told) == lines, process.said
    assert all(re.match(r"\d{4}-\d\d-\d\d .* WARNING stream_dr\.snapshot: ", line) for line in told)


@pytest.mark.test_all
def test_a_directory_in_use_names_the_process(tmp_path: Path) -> None:
    with stream_dr.Directory(tmp_path):
        assert str(os.getpid()) in refuses(tmp_path)
