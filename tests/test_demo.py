"""The demo: its table twice from one directory, the same rows seen; and the lines it prints work while it serves."""

import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from stream_dr import demo
from stream_dr.directory.inspect import inspect

COMMAND = [sys.executable, "-m", "stream_dr.cli", "demo", "--port", "0"]


def lines(text: str) -> dict[str, list[str]]:
    """The table's rows by model."""
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]
    return {row[0]: row[1:] for row in rows}


@pytest.mark.test_all
def test_two_runs_on_one_directory(tmp_path: Path) -> None:
    first = subprocess.run(
        [*COMMAND, "--exit", "--dir", str(tmp_path / "d")], capture_output=True, text=True, timeout=240
    )
    assert first.returncode == 0, first.stderr
    for heading in ("model", "components", "rows seen", "rows/s", "1-NN projected", "1-NN full"):
        assert heading in first.stdout
    table = lines(first.stdout)
    assert table.keys() == demo.MODELS.keys()
    assert {row[1] for row in table.values()} == {"1438"}
    assert float(table["lda"][3]) > float(table["lda"][4]) - 0.08
    assert all(float(row[2].replace(",", "")) > 0 for row in table.values())

    second = subprocess.run(
        [*COMMAND, "--exit", "--dir", str(tmp_path / "d")], capture_output=True, text=True, timeout=240
    )
    assert second.returncode == 0, second.stderr
    again = lines(second.stdout)
    for name, row in table.items():
        assert again[name][:2] + again[name][3:] == row[:2] + row[3:]
        assert again[name][2] == "–"
    told = inspect(tmp_path / "d")
    assert told["rows"] == 1438
    assert {model["rows"] for model in told["models"].values()} == {1438}


@pytest.mark.test_all
@pytest.mark.slow
def test_it_serves_on_and_its_curl_lines_work(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "--dir", str(tmp_path / "d")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        found: list[str] = []
        for line in process.stdout:
            if line.startswith("curl "):
                found.append(line)
            if len(found) == 3:
                break
        answers = [_curl(line) for line in found]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, process.stderr and process.stderr.read()
    assert answers[0].json()["models"].keys() == demo.MODELS.keys()
    assert len(answers[1].json()["z"][0]) == 9
    assert len(answers[2].json()["z"][0]) == 10


def _curl(line: str) -> httpx.Response:
    """The request that a curl line makes."""
    words = shlex.split(line)
    (url,) = [word for word in words if word.startswith("http")]
    headers = dict(words[i + 1].split(": ") for i, word in enumerate(words) if word == "-H")
    bodies = [words[i + 1] for i, word in enumerate(words) if word == "-d"]
    answer = httpx.post(url, content=bodies[0], headers=headers) if bodies else httpx.get(url)
    assert answer.status_code == 200, answer.text
    assert re.match(r"application/json", answer.headers["content-type"])
    return answer
