"""What there is and how it does: /stream, /events, the dashboard, /metrics, health, /docs."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain

import stream_dr
from tests.support.serving import Served, arrow, in_thread, post


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with in_thread(tmp_path_factory.mktemp("stream"), max_listeners=1) as served:
        served.http.put("/models/lda", json={"estimator": "lda"}).raise_for_status()
        post(served.http, arrow([[1, 2], [3, 4], [5, 7]], ["a", "b", "a"]), path="/partial_fit?wait=applied")
        yield served


def test_ready_without_model_and_row(tmp_path_factory: pytest.TempPathFactory) -> None:
    with in_thread(tmp_path_factory.mktemp("empty")) as served:
        assert served.http.get("/readyz").json() == {"status": "ready"}
        assert served.http.get("/livez").json() == {"status": "alive"}
        told = served.http.get("/stream").json()
        assert (told["position"], told["rows"], told["labels"], told["target_kind"]) == (-1, 0, [], None)


def test_stream(served: Served) -> None:
    told = served.http.get("/stream").json()
    assert (told["rows"], told["labels"], told["target_kind"]) == (3, ["a", "b"], "class")
    assert (told["layout"], told["features"], told["models"]) == ("dense", 2, ["lda"])


def test_a_model_counts_the_rows_of_each_label_that_are_left(tmp_path: Path) -> None:
    with in_thread(tmp_path) as served:
        served.http.put("/models/m", json={"estimator": "lda"}).raise_for_status()
        for labels in (["a", "b", "typo"], ["a", "b", "b"]):
            post(served.http, arrow([[1.0], [2.0], [4.0]], labels, id=["1", "2", "3"])).raise_for_status()
        served.http.post("/unlearn?wait=applied", json={"positions": [0]}).raise_for_status()
        told = served.http.get("/models/m").json()
        assert (told["classes"], told["class_rows"]) == (["a", "b"], [1, 2])


@pytest.mark.parametrize("accept", ["*/*", "application/openmetrics-text; version=1.0.0"])
def test_metrics_have_a_meaning_a_type_and_names_by_convention(served: Served, accept: str) -> None:
    answer = served.http.get("/metrics", headers={"Accept": accept})
    assert answer.headers["content-type"].startswith(
        "text/plain" if accept == "*/*" else "application/openmetrics-text"
    )
    read = plain if accept == "*/*" else openmetrics
    families = {family.name: family for family in read(answer.text)}
    for name, family in families.items():
        assert name.startswith(("stream_dr_", "process_"))
        assert family.documentation
        assert family.type in ("counter", "gauge", "histogram")
        if family.type == "counter":
            assert all(sample.name.endswith("_total") for sample in family.samples)
    values = {(s.name, *sorted(s.labels.items())): s.value for family in families.values() for s in family.samples}
    post = (("method", "POST"), ("route", "/partial_fit"), ("status", "200"))
    assert values[("stream_dr_requests_total", *post)] >= 1
    assert values[("stream_dr_request_seconds_count", ("route", "/partial_fit"))] >= 1
    assert values[("stream_dr_rows",)] == values[("stream_dr_engine_rows_appended_total",)] >= 3
    assert values[("stream_dr_model_lag", ("estimator", "lda"), ("model", "lda"))] == 0
    assert values[("stream_dr_engine_commits_total",)] >= 1
    assert values[("stream_dr_build_info", ("version", stream_dr.__version__))] == 1
    assert values[("stream_dr_ready",)] == 1
    assert values[("stream_dr_free_bytes",)] > values[("stream_dr_min_free_bytes",)] == 0
    assert values[("process_resident_memory_bytes",)] > 2**20


def test_two_services_in_a_process_count_apart(served: Served, tmp_path: Path) -> None:
    with in_thread(tmp_path) as other:
        assert 'method="POST",route="/partial_fit"' not in other.http.get("/metrics").text
    assert 'method="POST",route="/partial_fit"' in served.http.get("/metrics").text


def test_events_tell_what_changed_and_are_bounded(served: Served) -> None:
    with served.http.stream("GET", "/events") as events:
        assert events.headers["content-type"].startswith("text/event-stream")
        lines = events.iter_lines()
        assert next(lines) == "event: overview"
        first = json.loads(next(lines).removeprefix("data: "))
        assert first["models"]["lda"]["rows"] == 3
        assert served.http.get("/events").json()["code"] == "overloaded"
        post(served.http, arrow([[1, 2]], ["a"]), path="/partial_fit?wait=applied")
        later = next(json.loads(line[6:]) for line in lines if line.startswith("data: ") and '"rows":4' in line)
        assert later["position"] == first["position"] + 1


def test_docs_show_every_estimators_parameters(served: Served) -> None:
    assert served.http.get("/docs").status_code == 200
    schemas = served.http.get("/openapi.json").json()["components"]["schemas"]
    for key in stream_dr.ESTIMATORS:
        kind = stream_dr.ESTIMATORS[key]
        shown = schemas[f"{kind.__name__}Parameters"]["properties"]
        assert list(shown) == [name for name, _, _ in stream_dr.parameter_types(kind)]
    paths = served.http.get("/openapi.json").json()["paths"]
    assert {"/partial_fit", "/transform", "/models/{name}/projection", "/jobs/{id}", "/unlearn", "/events"} <= set(
        paths
    )


@pytest.mark.parametrize("page", ["/docs", "/redoc"])
def test_docs_need_no_other_host(served: Served, page: str) -> None:
    links = re.findall(r'(?:src|href)="([^"]+)"', served.http.get(page).text)
    assert any(link.endswith(".js") for link in links)
    for link in links:
        assert re.match("/[^/]", link)
        assert len(served.http.get(link).content) > (100_000 if link.endswith(".js") else 100)


def test_every_path_says_how_it_fails(served: Served) -> None:
    for path, methods in served.http.get("/openapi.json").json()["paths"].items():
        for method, told in methods.items():
            assert "application/problem+json" in str(told["responses"]), (method, path)
