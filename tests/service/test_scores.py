"""Scores of models where programs read them: /metrics, /models and /events say what the page shows."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.serving import Served, arrow, in_thread, post
from tests.support.waiting import wait_until

SHOWN = ("accuracy", "r2", "error", "baseline", "most_frequent", "tested", "tested_at")


def model_metrics(served: Served) -> dict[tuple[str, str], float]:
    """Metrics of models, by the metric's name and the model's."""
    families = text_string_to_metric_families(served.http.get("/metrics").text)
    samples = [sample for family in families for sample in family.samples if "model" in sample.labels]
    return {(sample.name.removeprefix("stream_dr_model_"), sample.labels["model"]): sample.value for sample in samples}


def first_event(served: Served) -> Any:
    with served.http.stream("GET", "/events") as events:
        return next(json.loads(line[6:]) for line in events.iter_lines() if line.startswith("data: "))


def learn(served: Served, y: np.ndarray | None, estimator: str) -> None:
    """Let a model learn five batches of 60 rows. y: numeric targets, or None for two labels."""
    served.http.put("/models/m", json={"estimator": estimator}).raise_for_status()
    rng = np.random.default_rng(0)
    for _ in range(5):
        X = rng.normal(size=(60, 3))
        labels = np.where(X[:, 0] + 0.5 * rng.normal(size=60) > 0, "a", "b") if y is None else None
        columns = {} if y is None else {"target": X @ y + 0.1 * rng.normal(size=60)}
        post(served.http, arrow(X, labels, **columns), path="/partial_fit?wait=applied").raise_for_status()


@pytest.mark.parametrize(
    ("estimator", "y", "score", "other"),
    [("lda", None, "accuracy", "r2"), ("opls", np.array([2.0, -1.0, 0.0]), "r2", "accuracy")],
)
def test_programs_read_the_score_that_the_page_shows(
    tmp_path: Path, estimator: str, y: np.ndarray | None, score: str, other: str
) -> None:
    with in_thread(tmp_path) as served:
        learn(served, y, estimator)
        page = served.http.get("/figures?model=m").json()["told"]["models"]["m"]
        scores = served.http.get("/models/m").json()["scores"]
        assert 0.6 < scores[score] <= 1
        assert scores[other] is None
        assert scores["tested"] >= 60
        assert scores == {name: page.get(name) for name in SHOWN}
        assert served.http.get("/models").json()["models"]["m"]["scores"] == scores
        assert first_event(served)["models"]["m"]["scores"] == scores

        metrics = model_metrics(served)
        assert (metrics[score, "m"], metrics["tested_rows", "m"]) == (scores[score], scores["tested"])
        assert (other, "m") not in metrics


def test_a_model_that_was_neither_tested_nor_published_has_no_such_metrics(tmp_path: Path) -> None:
    with in_thread(tmp_path) as served:
        answer = served.http.put("/models/m", json={"estimator": "lda"})
        assert answer.json()["scores"] is None
        assert first_event(served)["models"]["m"]["scores"] is None
        names = {name for name, _ in model_metrics(served)}
        assert "rows" in names
        assert not names & {"accuracy", "r2", "tested_rows", "published_timestamp_seconds"}


def test_the_time_of_publishing_outlives_a_restart(tmp_path: Path) -> None:
    with in_thread(tmp_path) as served:
        learn(served, None, "lda")
        metrics = model_metrics(served)
        published = metrics["published_timestamp_seconds", "m"]
        assert metrics["solve_seconds", "m"] > 0
        assert published <= served.http.get("/models/m").json()["scores"]["tested_at"] + 60
    with in_thread(tmp_path) as served:
        wait_until(lambda: served.http.get("/models/m").json()["state"] == "live")
        assert model_metrics(served)["published_timestamp_seconds", "m"] == published


def test_a_saved_estimator_sent_twice_is_described_as_any_model(tmp_path: Path) -> None:
    with in_thread(tmp_path) as served:
        learn(served, None, "lda")
        saved = served.http.get("/models/m/export").content
        sent = {"content": saved, "headers": {"content-type": "application/octet-stream"}}
        answers = [served.http.put("/models/again", **sent) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [201, 200]
        state = served.http.get("/models/again").json()
        assert all(answer.json().keys() == state.keys() for answer in answers)
