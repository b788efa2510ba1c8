"""POST /predict and Client.predict: the library's predictions, by what is published."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp

import stream_dr
from service import schemas
from stream_dr import CCA, LDA, PLSDA, ClassMeans, errors
from stream_dr.batch.arrow import read_arrow
from tests.support.serving import Served, in_thread

rng = np.random.default_rng(4)
X = rng.normal(size=(60, 3)) + 2.0 * np.eye(3)[np.arange(60) % 3]
LABELS = [["b", "c", "a"][i % 3] for i in range(60)]
SETS = [[label for label, there in zip("ab", (i % 3 == 0, i % 2 == 0), strict=True) if there] for i in range(60)]
NUMBERS = X @ [1.0, -2.0, 0.5] + 0.1 * rng.normal(size=60)
KEYS = {"lda": LDA, "class_means": ClassMeans, "cca": CCA, "plsda": PLSDA, "pca": stream_dr.PCA}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with in_thread(tmp_path_factory.mktemp("predict")) as running:
        for key in KEYS:
            assert running.http.put(f"/models/{key}", json={"estimator": key}).status_code == 201
        early = running.http.post("/predict?model=lda", json={"rows": [[1, 2, 3]]})
        assert (early.status_code, early.json()["code"]) == (409, "model_empty")
        sent = running.http.post("/partial_fit?wait=applied", json={"rows": X.tolist(), "labels": LABELS})
        assert sent.status_code == 200, sent.text
        yield running


def test_the_only_model_need_not_be_named(tmp_path: Path) -> None:
    with in_thread(tmp_path) as running:
        body = {"rows": X.tolist(), "labels": LABELS}
        row = "/transform?x=" + ",".join(map(str, X[0]))

        def asked() -> list[httpx.Response]:
            return [running.http.get(row), *(running.http.post(path, json=body) for path in ("/transform", "/predict"))]

        for answer in asked():
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
            assert "there are: none" in answer.json()["detail"]
        running.http.put("/models/only", json={"estimator": "lda"})
        running.http.post("/partial_fit?wait=applied", json=body)
        assert [(answer.status_code, answer.json()["model"]) for answer in asked()] == [(200, "only")] * 3
        running.http.put("/models/another", json={"estimator": "lda"})
        for answer in asked():
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
            assert "there are: another, only. Give model=NAME" in answer.json()["detail"]


@pytest.mark.parametrize("key", ["lda", "class_means", "cca", "plsda"])
def test_what_is_predicted_is_the_librarys(served: Served, key: str) -> None:
    model = KEYS[key]().fit(X, LABELS)
    answer = served.http.post(f"/predict?model={key}", json={"rows": X.tolist(), "ids": [str(i) for i in range(60)]})
    told = answer.json()
    schemas.Predicted.model_validate(told, strict=True)
    assert told["predicted"] == model.predict(X).tolist()
    assert told["classes"] == ["a", "b", "c"]
    assert (told["model"], told["solution"], told["id"][59], told["unseen"]) == (key, "exact", "59", 0)
    if key in ("lda", "class_means"):
        np.testing.assert_allclose(told["probabilities"], model.predict_proba(X), atol=1e-9)
    else:
        np.testing.assert_allclose(told["scores"], (X - model.mean_) @ model.coef_.T + model.intercept_, atol=1e-9)


def test_the_client_predicts(served: Served) -> None:
    with stream_dr.Client(served.url) as client:
        model = LDA().fit(X, LABELS)
        assert np.array_equal(client.predict(X, model="lda"), model.predict(X))
        shares, classes = client.predict_proba(X, model="lda")
        assert classes.tolist() == ["a", "b", "c"]
        np.testing.assert_allclose(shares, model.predict_proba(X), atol=1e-9)
        with pytest.raises(errors.CannotPredict, match="without probabilities"):
            client.predict_proba(X, model="plsda")
        with pytest.raises(errors.CannotPredict, match="is of pca"):
            client.predict(X, model="pca")


def test_in_arrow(served: Served) -> None:
    given = {"accept": "application/vnd.apache.arrow.stream"}
    answer = served.http.post("/predict?model=lda", json={"rows": X.tolist()}, headers=given)
    table = pa.Table.from_batches(read_arrow(answer.content))
    assert table.column_names == ["label", "probabilities"]
    assert table.column("label").to_pylist() == LDA().fit(X, LABELS).predict(X).tolist()
    assert table.schema.metadata[b"classes"] == b'["a", "b", "c"]'


@pytest.mark.parametrize(("name", "targets"), [("labels", SETS), ("targets", NUMBERS)])
def test_several_labels_and_numbers(name: str, targets: Any, tmp_path: Path) -> None:
    with in_thread(tmp_path) as served, stream_dr.Client(served.url) as client:
        client.put_model("cca", "cca")
        client.partial_fit(X, targets, wait=True)
        predicted, model = client.predict(X), CCA().fit(X, targets)
        if name == "labels":
            there = model.predict(X).astype(bool)
            assert predicted.tolist() == [[label for label, has in zip("ab", row, strict=True) if has] for row in there]
        else:
            np.testing.assert_allclose(predicted, model.predict(X), atol=1e-9)
            assert np.corrcoef(predicted, targets)[0, 1] > 0.99


def test_features_that_grow_by_the_streams_schema_are_counted(tmp_path: Path) -> None:
    with in_thread(tmp_path) as served:
        served.http.put("/models/means", json={"estimator": "class_means"})
        rows = [{"indices": [i % 3], "values": [2.0]} for i in range(6)]
        served.http.post("/partial_fit?wait=applied", json={"rows": rows, "labels": ["a", "b", "c"] * 2})
        told = served.http.post(
            "/predict?model=means", json={"rows": [{"indices": [1, 9], "values": [1.0, 5.0]}]}
        ).json()
    assert (told["predicted"], told["unseen"]) == (["b"], 1)
    means = ClassMeans().fit(sp.csr_matrix(2.0 * np.eye(3)), ["a", "b", "c"])
    np.testing.assert_allclose(told["probabilities"], means.predict_proba([[0.0, 1.0, 0.0]]), atol=1e-9)


def test_a_diagonal_solution_answers_scores_and_no_probabilities(tmp_path: Path) -> None:
    with in_thread(tmp_path) as served, stream_dr.Client(served.url) as client:
        client.put_model("lda", "lda", scatter="diagonal")
        client.partial_fit(X, LABELS, wait=True)
        told = served.http.post("/predict?model=lda", json={"rows": X.tolist()}).json()
        assert (told["solution"], "probabilities" in told) == ("diagonal", False)
        model = LDA(scatter="diagonal").fit(X, LABELS)
        np.testing.assert_allclose(told["scores"], model.decision_function(X), atol=1e-9)
        assert told["predicted"] == model.predict(X).tolist()
        with pytest.raises(errors.CannotPredict, match=r"diagonal.*refine"):
            client.predict_proba(X)
