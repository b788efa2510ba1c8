"""What type checkers see of the public names, on a script as a user writes it, outside of this repository."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.test_all

SCRIPT = """
import numpy as np
import stream_dr

X, y = np.zeros((4, 2)), ["a", "b", "a", "b"]
reveal_type(stream_dr.LDA())
reveal_type(stream_dr.CCIPCA(n_components=3).partial_fit(X))
reveal_type(stream_dr.PCA().fit_transform(X))
reveal_type(stream_dr.LDA().fit(X, y).score(X, y))
reveal_type(stream_dr.Client("http://127.0.0.1:8000").model("lda")["rows"])
stream_dr.LDA(n_component=3)
stream_dr.CCA(scaling="units")
stream_dr.HSL(3.5)
"""
ARRAY = "ndarray[tuple[Any, ...], dtype[Any]]"
SEEN = ("LDA", "CCIPCA", ARRAY, "float", "int")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "user.py").write_text(SCRIPT)
    return tmp_path / "user.py"


def ran(script: Path, *command: str) -> str:
    done = subprocess.run([*command, script.name], cwd=script.parent, capture_output=True, text=True, timeout=240)
    return done.stdout


def test_mypy_knows_them(script: Path) -> None:
    lines = ran(script, sys.executable, "-m", "mypy").splitlines()
    told = [line.partition('Revealed type is "')[2].rstrip('"') for line in lines if "Revealed" in line]
    short = [text.replace("stream_dr.estimators.lda.", "").replace("stream_dr.estimators.ccipca.", "") for text in told]
    assert [text.replace("numpy.", "").replace("builtins.", "") for text in short] == list(SEEN)
    errors = [int(line.split(":")[1]) for line in lines if ": error:" in line]
    assert errors == [11, 12, 13], lines


def test_pyright_knows_them(script: Path) -> None:
    binary = str(Path(sys.executable).parent / "basedpyright")
    found = json.loads(ran(script, binary, "--outputjson", "--pythonpath", sys.executable))["generalDiagnostics"]
    told = [
        entry["message"].rpartition(' is "')[2].rstrip('"') for entry in found if entry["severity"] == "information"
    ]
    assert told == list(SEEN)
    errors = sorted(entry["range"]["start"]["line"] + 1 for entry in found if entry["severity"] == "error")
    assert errors == [11, 12, 13], found
