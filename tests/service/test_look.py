"""The dashboard's page, and the figures it asks for: what they hold, what they cost nothing for, and who may see what."""

import base64
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_wine

import stream_dr
from service.routes.stream import PAGES
from tests.support.serving import Served, arrow, in_thread, post

X, y = load_wine(return_X_y=True)
LABELS = ["<b>&one" if label == 1 else str(label) for label in y]
TYPES = {"f4": np.float32, "f8": np.float64, "i4": np.int32}


def unpacked(body: bytes) -> dict[str, Any]:
    """A body of /figures, plotly's typed arrays as numpy's."""

    def placed(part: Any) -> Any:
        if isinstance(part, list):
            return [placed(one) for one in part]
        if not isinstance(part, dict):
            return part
        if "bdata" not in part:
            return {name: placed(one) for name, one in part.items()}
        return np.frombuffer(base64.b64decode(part["bdata"]), TYPES[part["dtype"]])

    answer: dict[str, Any] = placed(json.loads(body))
    return answer | answer["told"]


def figures(served: Served, **query: Any) -> dict[str, Any]:
    answer = served.http.get("/figures", params=query)
    answer.raise_for_status()
    return unpacked(answer.content)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with in_thread(tmp_path_factory.mktemp("look")) as served:
        for name, key in (("lda", "lda"), ("near", "laplacian_eigenmaps")):
            params = {"reservoir": 50, "n_neighbors": 5} if name == "near" else {}
            served.http.put(f"/models/{name}", json={"estimator": key, "params": params}).raise_for_status()
        for rows in (slice(0, 60), slice(60, 120), slice(120, 178)):
            post(served.http, arrow(X[rows], LABELS[rows]), path="/partial_fit?wait=applied").raise_for_status()
        yield served


def test_the_page_is_ours_alone_and_small_and_its_scripts_are_files(served: Served) -> None:
    page = served.http.get("/")
    policy = page.headers["content-security-policy"]
    for rule in (
        "default-src 'none'",
        "script-src 'self' 'unsafe-eval'",
        "connect-src 'self'",
        "frame-ancestors 'none'",
    ):
        assert rule in policy
    assert page.headers["x-frame-options"] == "DENY"
    assert not re.search(r"<script(?![^>]*src=)|\son\w+=|https?:", page.text)
    for link in re.findall(r'(?:src|href)="(/dashboard/[^"]+)"', page.text):
        assert served.http.get(link).status_code == 200
    assert sum(path.stat().st_size for path in PAGES.iterdir()) <= 100_000
    assert len(served.http.get("/dashboard/plotly.js").content) > 1_000_000
    script = served.http.get("/dashboard/app.js")
    assert "javascript" in script.headers["content-type"]
    again = served.http.get("/dashboard/app.js", headers={"If-None-Match": script.headers["etag"]})
    assert again.status_code == 304
    assert served.http.get("/dashboard/../settings.py").status_code == 404


def test_points_are_what_transform_answers_and_labels_are_text(served: Served) -> None:
    told = figures(served, model="lda", rows=100)
    shown = {t["name"]: t for t in told["figures"]["projection"]["figure"]["data"]}
    z = np.array(served.http.post("/transform?model=lda", json={"rows": X[-100:].tolist()}).json()["z"])
    for name, label in (("&lt;b&gt;&amp;one", "<b>&one"), ("2", "2")):
        at = [i for i, given in enumerate(LABELS[-100:]) if given == label]
        np.testing.assert_allclose(np.stack([shown[name]["x"], shown[name]["y"]], 1), z[at], rtol=1e-4, atol=1e-5)
    counts = dict(map(tuple, told["counts"]))
    assert counts == {label: LABELS[-100:].count(label) for label in set(LABELS[-100:])}
    assert list(counts) == sorted(counts)
    assert (told["models"]["lda"]["refines"], told["models"]["near"]["refines"]) == (True, False)
    loadings = told["figures"]["loadings"]["figure"]["data"][0]
    lda = stream_dr.LDA().fit(X, LABELS)
    weighed = np.abs(lda.components_[0]) * X[-100:].std(axis=0)
    np.testing.assert_allclose(np.abs(loadings["x"])[::-1], np.sort(weighed)[::-1][: len(loadings["x"])], rtol=1e-6)
    captured = told["figures"]["spectrum"]["figure"]["data"][1]["y"]
    axes = np.linalg.qr(lda.components_.T)[0]
    shares = np.cumsum((X[-100:] @ axes).var(axis=0)) / X[-100:].var(axis=0).sum()
    np.testing.assert_allclose(captured, shares[: len(captured)], rtol=1e-6)
    spectrum = told["figures"]["spectrum"]["figure"]["data"][0]
    np.testing.assert_allclose(spectrum["y"], served.http.get("/models/lda").json()["eigenvalues"])
    assert told["models"]["lda"]["rows"] == 178
    assert told["health"]["free_bytes"] > 0
    assert abs(told["health"]["last_rows"] - time.time()) < 300


def test_figures_that_the_asker_has_are_left_out_until_they_change(served: Served) -> None:
    first = figures(served, model="lda")["figures"]
    tags = ",".join(told["tag"] for told in first.values())
    again = figures(served, model="lda", have=tags)["figures"]
    # Figures of records change while the service records.
    changed = {kind for kind, told in again.items() if "figure" in told}
    assert changed <= {"progress", "accuracy", "confusion"}
    other = figures(served, model="lda", have=tags, component=1, dimensions=3)["figures"]
    assert {kind for kind, told in other.items() if "figure" in told} >= {"loadings", "projection"}
    assert len(other["loadings"]["figure"]["data"][0]["x"]) == 13


def test_models_without_loadings_or_of_another_name(served: Served) -> None:
    told = figures(served, model="near")["figures"]["loadings"]["figure"]
    assert "no loadings" in told["layout"]["annotations"][0]["text"]
    assert served.http.get("/figures?dimensions=4").status_code == 422
    assert set(figures(served)["figures"]) == set(figures(served, model="none")["figures"]) == {"accuracy", "progress"}


def test_unlearned_rows_leave_the_points(tmp_path: Path) -> None:
    with in_thread(tmp_path) as served:
        served.http.put("/models/lda", json={"estimator": "lda"}).raise_for_status()
        for rows in (slice(0, 90), slice(90, 178)):
            post(served.http, arrow(X[rows], LABELS[rows]), path="/partial_fit?wait=applied").raise_for_status()
        served.http.post("/unlearn?wait=applied", json={"positions": [1]}).raise_for_status()
        told = figures(served, model="lda")
        assert sum(rows for _, rows in told["counts"]) == 90
        drawn = told["figures"]["projection"]["figure"]["data"]
        assert sum(len(trace["x"]) for trace in drawn if trace["name"] != "class means") == 90


def test_forms_have_every_estimators_parameters(served: Served) -> None:
    told = served.http.get("/dashboard/forms.json").json()
    for key, kind in stream_dr.ESTIMATORS.items():
        types = {name: default for name, _, default in stream_dr.parameter_types(kind)}
        assert {p["name"]: p["default"] for p in told[key]["params"]} == types
    scatter = next(p for p in told["lda"]["params"] if p["name"] == "scatter")
    assert scatter["choices"] == ["auto", "exact", "diagonal"]


def test_a_read_token_sees_all_and_may_write_nothing(tmp_path: Path) -> None:
    with in_thread(tmp_path, read_token="reading-it", write_token="writing-it") as served:
        assert served.http.get("/").status_code == served.http.get("/dashboard/app.js").status_code == 200
        assert served.http.get("/figures").status_code == 401
        for token, may in (("reading-it", False), ("writing-it", True)):
            answer = served.http.get("/figures", headers={"Authorization": f"Bearer {token}"})
            assert unpacked(answer.content)["may_write"] is may


def test_a_page_of_another_origin_may_not_write(served: Served) -> None:
    answer = served.http.put("/models/x", json={"estimator": "pca"}, headers={"Origin": "http://elsewhere.example"})
    assert answer.status_code == 403
    assert served.http.get("/figures", headers={"Origin": "http://elsewhere.example"}).status_code == 403
