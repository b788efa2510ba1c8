"""Feature maps over HTTP: a spec is plain JSON in PUT, named rows are hashed, a wrong spec is a 422 that says why."""

from pathlib import Path

import numpy as np
import pytest

from stream_dr import LDA, ClassMeans, hashing, nystroem, random_fourier
from tests.support.serving import in_thread

rng = np.random.default_rng(4)
X = rng.normal(size=(60, 3))
Y = ["ab"[int(a * b > 0)] for a, b, _ in X]
FOURIER = random_fourier(50, gamma=0.2)


def named(rows: np.ndarray, backwards: bool = False) -> dict[str, list[dict[str, float]]]:
    order = [("u", 0), ("v", 1), ("w", 2)]
    return {"rows": [{name: row[j] for name, j in (reversed(order) if backwards else order)} for row in rows.tolist()]}


def test_models_behind_maps_answer_as_the_library_does(tmp_path: Path) -> None:
    with in_thread(tmp_path) as served:
        for name, estimator, params in (
            ("kernel", "lda", {"gamma": 1.0, "feature_map": FOURIER}),
            ("hashed", "class_means", {"feature_map": hashing(32)}),
            ("landmarks", "lda", {"gamma": 1.0, "feature_map": nystroem(X[:9])}),
        ):
            made = served.http.put(f"/models/{name}", json={"estimator": estimator, "params": params})
            assert made.status_code == 201, made.text
            assert made.json()["params"] == params
        sent = served.http.post("/partial_fit?wait=applied", json={**named(X), "labels": Y})
        assert sent.status_code == 200, sent.text
        kernel = served.http.post("/transform?model=kernel", json=named(X, backwards=True)).json()["z"]
        landmarks = served.http.post("/transform?model=landmarks", json=named(X, backwards=True)).json()["z"]
        hashed = served.http.post("/transform?model=hashed", json=named(X, backwards=True)).json()["z"]
        facts = served.http.get("/models/kernel/projection", headers={"accept": "application/json"}).json()
    assert np.array(kernel) == pytest.approx(LDA(gamma=1.0, feature_map=FOURIER).fit(X, Y).transform(X), abs=1e-12)
    on = LDA(gamma=1.0, feature_map=nystroem(X[:9])).fit(X, Y)
    assert np.array(landmarks) == pytest.approx(on.transform(X), abs=1e-9)
    library = ClassMeans(feature_map=hashing(32)).fit(named(X)["rows"], Y)
    assert np.abs(hashed) == pytest.approx(np.abs(library.transform(named(X)["rows"])), abs=1e-12)
    assert facts["kind"] == "mapped"
    assert '"gamma": 0.2' in facts["feature_map"]


def test_a_table_is_posted_as_it_is_and_a_wrong_map_is_refused_with_its_code(tmp_path: Path) -> None:
    people = [{"sex": ["female", "male"][i % 2], "age": None if i % 5 == 0 else 20 + i % 9} for i in range(40)]
    labels = [["yes", "no"][i % 2] for i in range(40)]
    with in_thread(tmp_path) as served:
        for wrong in ({"map": "cubes"}, {"map": "hashing", "n_features": 0}, "rbf"):
            answer = served.http.put("/models/m", json={"estimator": "lda", "params": {"feature_map": wrong}})
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid_parameter")
            assert "feature" in answer.json()["detail"]
        spec = {"estimator": "lda", "params": {"gamma": 1.0, "feature_map": {"map": "table"}}}
        assert served.http.put("/models/m", json=spec).status_code == 201
        sent = served.http.post("/partial_fit?wait=applied", json={"rows": people, "labels": labels})
        assert sent.status_code == 200, sent.text
        asked = {"rows": [{"sex": "female", "age": None}, {"sex": "never", "age": 3}, {"sex": "male"}]}
        answer = served.http.post("/transform?model=m", json=asked).json()
        predicted = served.http.post("/predict?model=m", json=asked).json()
        refused = served.http.post("/partial_fit", json={"rows": [{"sex": "male", "age": "old"}], "labels": ["no"]})
        lacking = {"rows": [{"sex": "male"}], "labels": ["no"]}
        receipts = [served.http.post(f"/partial_fit{query}", json=lacking).json() for query in ("?check=1", "")]
        other = served.http.put("/models/plain", json={"estimator": "lda", "params": {}})
        stream = served.http.get("/stream").json()
        facts = served.http.get("/models/m/projection", headers={"accept": "application/json"}).json()
    library = LDA(gamma=1.0, feature_map={"map": "table"}).fit(people, labels)
    assert np.array(answer["z"]) == pytest.approx(library.transform(asked["rows"]), abs=1e-9)
    assert answer["unseen"] == 1
    assert predicted["predicted"][::2] == ["yes", "no"]
    assert (refused.status_code, refused.json()["code"]) == (422, "schema_mismatch")
    assert "row 0, column age is 'old'" in refused.json()["detail"]
    assert [told["columns_missing"] for told in receipts] == [["age"], ["age"]]
    assert "columns_missing" not in sent.json()
    assert other.status_code in (409, 422)
    assert "table" in other.json()["detail"]
    assert (stream["layout"], stream["kinds"]) == ("table", ["text", "number"])
    assert "sex=female" in facts["columns"]
