"""The log as JSON: one object a line, access lines and tracebacks included."""

import json
import logging
import os
import signal
import subprocess
import sys
import urllib.request
from datetime import datetime
from pathlib import Path

import pytest

from service.serve import JsonFormatter
from tests.support.serving import ROOT


def test_a_record_is_one_line_with_its_exception() -> None:
    try:
        raise ValueError("no\nsuch row")
    except ValueError as e:
        record = logging.LogRecord("service", logging.ERROR, "f.py", 1, "%d × “%s”", (2, "a\nb"), (type(e), e, None))
    line = JsonFormatter().format(record)
    assert "\n" not in line
    fields = json.loads(line)
    assert datetime.fromisoformat(fields.pop("time")).timestamp() == pytest.approx(record.created, abs=0.001)
    assert fields == {
        "level": "ERROR",
        "logger": "service",
        "message": "2 × “a\nb”",
        "exception": "ValueError: no\nsuch row",
    }


@pytest.mark.test_all
@pytest.mark.parametrize("start", [["-m", "service"], ["-m", "stream_dr", "-v", "serve"]])
def test_every_line_of_a_service_is_an_object(tmp_path: Path, start: list[str]) -> None:
    told = {
        "STREAM_DR_DIR": str(tmp_path),
        "STREAM_DR_PORT": "0",
        "STREAM_DR_WARM_UP": "no",
        "STREAM_DR_LOG_LEVEL": "debug",
        "STREAM_DR_LOG_FORMAT": "json",
    }
    command = [sys.executable, *start]
    with subprocess.Popen(command, cwd=ROOT, env=os.environ | told, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(json.loads(line))
            if lines[-1]["message"].startswith("serving http"):
                urllib.request.urlopen(f"{lines[-1]['message'].split()[1]}/livez", timeout=10).close()
                process.send_signal(signal.SIGTERM)
    assert process.returncode == 0
    access = [line["message"] for line in lines if line["logger"] == "uvicorn.access"]
    assert len(access) == 1
    assert access[0].endswith('"GET /livez HTTP/1.1" 200')
    assert all(set(line) == {"time", "level", "logger", "message"} for line in lines)
