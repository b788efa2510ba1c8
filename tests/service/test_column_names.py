"""A column's name means the same on every way in: features may be called as the columns of a batch are."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import httpx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import stream_dr
from stream_dr import LDA, Client
from stream_dr.batch.arrow import RESERVED_NAMES
from tests.support.serving import ARROW, Process, Served, in_thread, stream
from tests.support.waiting import wait_until

RANDOM = np.random.default_rng(3)
Y = RANDOM.choice(["u", "v"], 100)
IDS = [f"r{i}" for i in range(100)]
NAMES = ("height", *RESERVED_NAMES, "feature:weight", "feature:height")
TABLE_LDA = {"feature_map": {"map": "table"}}


def frame(kind: str) -> pd.DataFrame:
    """Rows with a feature of each name."""
    X = RANDOM.normal(size=(100, len(NAMES))) + np.outer(Y == "u", np.linspace(0, 2, len(NAMES)))
    rows = pd.DataFrame(X, columns=list(NAMES))
    if kind == "table":
        rows["town"] = np.where(RANDOM.random(100) < 0.5, "a", "b")
    return rows


def columns(rows: pd.DataFrame) -> dict[str, pa.Array]:
    """Arrow columns under the names of the frame's."""
    return {name: pa.array(rows[name]) for name in rows}


def learn_json(served: Served, rows: pd.DataFrame) -> None:
    body = {"rows": rows.to_dict("records"), "labels": Y.tolist(), "ids": IDS}
    served.http.post("/partial_fit?wait=applied", json=body).raise_for_status()


def learn_client(served: Served, rows: pd.DataFrame) -> None:
    with Client(served.url) as client:
        client.partial_fit(rows, Y, ids=IDS, wait=True)


def learn_arrow(served: Served, rows: pd.DataFrame) -> None:
    body = stream({**prefixed(rows), "label": pa.array(Y), "id": pa.array(IDS)})
    served.http.post("/partial_fit?wait=applied", content=body, headers={"Content-Type": ARROW}).raise_for_status()


def prefixed(rows: pd.DataFrame) -> dict[str, pa.Array]:
    """Arrow columns under the names that the documentation says."""
    reserved = (*RESERVED_NAMES, "feature:weight")
    return {f"feature:{name}" if name in reserved else name: values for name, values in columns(rows).items()}


def project_json(served: Served, rows: pd.DataFrame) -> Any:
    answer = served.http.post("/transform", json={"rows": rows.to_dict("records")}).raise_for_status().json()
    assert not answer.get("columns_missing")
    return answer["z"]


def project_bare_arrow(served: Served, rows: pd.DataFrame) -> Any:
    headers = {"Content-Type": ARROW}
    # A bare "feature:weight" is the feature weight, because that is how its column is called.
    named = columns(rows.rename(columns={"feature:weight": "feature:feature:weight"}))
    answer = served.http.post("/transform", content=stream(named), headers=headers).raise_for_status().json()
    assert not answer.get("columns_missing")
    return answer["z"]


def project_client(form: Callable[[pd.DataFrame], Any]) -> Callable[[Served, pd.DataFrame], Any]:
    def project(served: Served, rows: pd.DataFrame) -> Any:
        with Client(served.url) as client:
            return client.transform(form(rows))

    return project


PROJECTIONS = {
    "json": project_json,
    "bare arrow": project_bare_arrow,
    "pandas": project_client(lambda rows: rows),
    "polars": project_client(lambda rows: pl.from_pandas(rows)),
    "arrow table": project_client(lambda rows: pa.table(columns(rows))),
    "duckdb": project_client(lambda rows: duckdb.from_arrow(pa.table(columns(rows)))),
    "dicts": project_client(lambda rows: rows.to_dict("records")),
}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with in_thread(tmp_path) as served:
        yield served


@pytest.mark.parametrize("learn", [learn_json, learn_client, learn_arrow])
@pytest.mark.parametrize("kind", ["numbers", "table"])
def test_every_way_learns_and_projects_as_the_library_does(served: Served, learn: Any, kind: str) -> None:
    rows = frame(kind)
    parameters: dict[str, Any] = TABLE_LDA if kind == "table" else {}
    served.http.put("/models/lda", json={"estimator": "lda", "params": parameters}).raise_for_status()
    learn(served, rows)
    assert served.http.get("/stream").json()["names"] == list(rows.columns)
    z = LDA(feature_map=stream_dr.table() if kind == "table" else None).fit(rows, Y).transform(rows)
    for way, project in PROJECTIONS.items():
        np.testing.assert_allclose(np.abs(project(served, rows)), np.abs(z), rtol=1e-6, atol=1e-9, err_msg=way)


@pytest.mark.parametrize("kind", ["numbers", "table"])
def test_rows_to_learn_whose_column_may_be_the_feature_are_refused(served: Served, kind: str) -> None:
    rows = frame(kind)
    if kind == "table":
        served.http.put("/models/lda", json={"estimator": "lda", "params": TABLE_LDA}).raise_for_status()
    learn_json(served, rows)
    forms = {"label": pa.array(Y), "labels": pa.array([[y] for y in Y]), "id": pa.array(IDS)}
    for name in RESERVED_NAMES:
        body = prefixed(rows)
        values = body.pop(f"feature:{name}")
        body[name] = forms.get(name, values)
        refused = served.http.post("/partial_fit", content=stream(body), headers={"Content-Type": ARROW})
        assert refused.status_code == 422, refused.text
        assert f"feature:{name}" in refused.json()["detail"], refused.text
    assert served.http.get("/stream").json()["rows"] == 100


@pytest.mark.parametrize("kind", ["numbers", "table"])
def test_rows_are_erased_and_the_directory_is_served_again(tmp_path: Path, kind: str) -> None:
    rows = frame(kind)
    rows.loc[7, "weight"] = 123456.5
    parameters: dict[str, Any] = TABLE_LDA if kind == "table" else {}
    again = (rows.drop(index=7), np.delete(Y, 7))
    process = Process(tmp_path)
    with Client(process.url) as client:
        client.put_model("lda", "lda", **parameters)
        body = {"rows": rows.to_dict("records"), "labels": Y.tolist(), "ids": IDS}
        httpx.post(f"{process.url}/partial_fit?wait=applied", json=body).raise_for_status()
        client.unlearn(ids=["r7"], wait=True)
        expected = client.transform(rows)
    assert process.stop() == 0, process.said

    # Every stop snapshots the model. The row is erased once all snapshots are past its removal.
    for _ in range(2):
        process = Process(tmp_path)
        with Client(process.url) as client:
            np.testing.assert_allclose(client.transform(rows), expected, rtol=1e-6, atol=1e-9)
            client.partial_fit(*again, wait=True)
            expected = client.transform(rows)
        assert process.stop() == 0, process.said
    assert not any(b"123456.5" in file.read_bytes() for file in (tmp_path / "log").iterdir())

    process = Process(tmp_path)
    with Client(process.url) as client:
        client.put_model("late", "lda", **parameters)
        wait_until(lambda: client.model("late")["rows"] == 297)
        wait_until(lambda: client.model("late")["version"])
        late = client.transform(rows, "late")
    np.testing.assert_allclose(np.abs(late), np.abs(expected), rtol=1e-6, atol=1e-9)
    assert process.stop() == 0, process.said
