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
from stream_dr.errors import OutputExists

COMMAND = [sys.executable, "-m", "stream_dr.cli", "demo", "--port", "0"]


def number(cell: str) -> float:
    """A cell's number."""
    return float(cell.replace(",", ""))


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
    for heading in ("model", "components", "rows seen", "accuracy", "bytes a row", "µs a query", "rows/s"):
        assert heading in first.stdout
    table = lines(first.stdout)
    digits = {name: row for name, row in table.items() if name.startswith("digits")}
    table = {name: row for name, row in table.items() if name not in digits}
    assert table.keys() == {*demo.MODELS, demo.UNPROJECTED_LINE_NAME}
    assert {row[1] for row in table.values()} == {"24000"}
    assert {row[1] for row in digits.values()} == {"1438"}
    pca, lda, fourier, whole = (float(row[2]) for row in digits.values())
    assert fourier > lda > whole > pca
    accuracy = {name: float(row[2]) for name, row in table.items()}
    assert max(accuracy, key=accuracy.__getitem__) == "lda"
    assert accuracy["lda"] > accuracy["ccipca"] + 0.02 > accuracy[demo.UNPROJECTED_LINE_NAME] + 0.05
    assert float(table["lda"][3]) * 30 < number(table[demo.UNPROJECTED_LINE_NAME][3])
    assert all(number(row[5]) > 0 for name, row in table.items() if name in demo.MODELS)
    others = [line.strip(" │┃") for line in first.stdout.splitlines() if not line.startswith("│")]
    assert not [line for line in others if line.startswith(tuple(demo.MODELS))]

    second = subprocess.run(
        [*COMMAND, "--exit", "--dir", str(tmp_path / "d")], capture_output=True, text=True, timeout=240
    )
    assert second.returncode == 0, second.stderr
    again = lines(second.stdout)
    for name, row in table.items():
        assert again[name][:4] == row[:4]
        assert again[name][5] == "–"
    for name, row in digits.items():
        assert again[name][:4] == row[:4]
    told = inspect(tmp_path / "d")
    assert told["rows"] == 24_000
    assert {model["rows"] for model in told["models"].values()} == {24_000}


def test_a_directory_of_another_demo_is_told(tmp_path: Path) -> None:
    demo.ensure_training_shards(tmp_path / "shards", demo.digits())
    with pytest.raises(OutputExists, match="1438 rows, of an earlier demo: take another --dir"):
        demo.ensure_training_shards(tmp_path / "shards", demo.generate_documents())


@pytest.mark.test_all
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
    assert len(answers[1].json()["z"][0]) == 3
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
