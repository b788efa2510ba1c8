"""What there is and how it does: /stream, /events, the dashboard, /metrics, health, /docs."""

import json
import re
from collections.abc import Iterator

import pytest

import stream_dr
from tests.service.serving import Served, arrow, in_thread, post

LINE = re.compile(r'(stream_dr_[a-z_]+)(\{([a-z]+="[^"]*",?)+\})? (-?[0-9.e+-]+)$')


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


def test_metrics_are_prometheus_text_of_our_names(served: Served) -> None:
    answer = served.http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = [line for line in answer.text.splitlines() if not line.startswith("# TYPE stream_dr_")]
    for line in samples:
        assert LINE.match(line), line
    names = {line.partition(" ")[0] for line in samples}
    assert 'stream_dr_requests_total{method="POST",route="/partial_fit",status="200"}' in names
    assert "stream_dr_rows 3" in samples
    assert 'stream_dr_model_lag{model="lda",estimator="lda"} 0' in samples


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


def test_the_dashboard_is_one_self_contained_page(served: Served) -> None:
    page = served.http.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert not re.findall(r'(?:src|href)="https?:', page.text)


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
        assert len(served.http.get(link).content) > 1_000


def test_every_path_says_how_it_fails(served: Served) -> None:
    for path, methods in served.http.get("/openapi.json").json()["paths"].items():
        for method, told in methods.items():
            assert "application/problem+json" in str(told["responses"]), (method, path)
