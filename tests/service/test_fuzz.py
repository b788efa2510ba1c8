"""Fuzz, the short form: nothing that is nearly right gets a 5xx, harms the process, or changes what it does not learn.

The long form (20,000 streams, and schemathesis against the service's own OpenAPI): python -m
tests.campaigns.bodies service.
"""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import mutating
from tests.support.serving import ARROW, Served, arrow, in_thread, post, raw_status

COUNT = 60
JSON = "application/json"
REFUSALS = (400, 404, 409, 413, 415, 422)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with in_thread(tmp_path_factory.mktemp("fuzz"), max_features=10_000, body_timeout=0.2) as served:
        served.http.put("/models/lda", json={"estimator": "lda"}).raise_for_status()
        served.http.put("/models/pca", json={"estimator": "ccipca"}).raise_for_status()
        post(served.http, arrow(mutating.ROWS, list("abcabca")), path="/partial_fit?wait=applied").raise_for_status()
        yield served


@pytest.mark.parametrize(
    ("path", "kind", "make"),
    [
        ("/partial_fit", ARROW, mutating.arrow_stream),
        ("/partial_fit", JSON, mutating.json_batch),
        ("/transform?model=lda", ARROW, mutating.arrow_stream),
        ("/transform?model=pca", JSON, mutating.json_batch),
    ],
    ids=["learn Arrow", "learn JSON", "project Arrow", "project JSON"],
)
def test_rows(served: Served, path: str, kind: str, make: Any) -> None:
    for seed in range(COUNT):
        before = served.http.get("/stream").json()
        answer = served.http.post(path, content=make(random.Random(seed)), headers={"Content-Type": kind})
        assert answer.status_code in (200, *REFUSALS), (seed, answer.text)
        if answer.status_code != 200:
            assert answer.headers["content-type"] == "application/problem+json", seed
            assert served.http.get("/stream").json() == before, seed
    models = served.http.get("/models").json()["models"]
    assert [model["state"] for model in models.values()] == ["live", "live"], models


def test_heads(served: Served) -> None:
    before = served.http.get("/stream").json()
    for seed in range(COUNT // 3):
        draw = random.Random(seed)
        request = mutating.request(draw, draw.choice(mutating.SOUND), ARROW)
        status = raw_status(served.url, request)
        assert status[:1] != "5", (seed, status, request[:200])
        after = served.http.get("/stream").json()
        assert after == before or (status == "200" and request.startswith(b"POST /partial_fit")), seed
        before = after


def test_specs(served: Served) -> None:
    for seed in range(COUNT):
        body = mutating.spec(random.Random(seed))
        answer = served.http.put(f"/models/m{seed}", content=body, headers={"Content-Type": JSON})
        assert answer.status_code in (201, *REFUSALS), (seed, answer.text)
        if answer.status_code == 201:
            served.http.delete(f"/models/m{seed}").raise_for_status()


def test_queries(served: Served) -> None:
    draw = random.Random(0)
    pieces = [
        "model=lda",
        "x=1,2,3",
        "x=",
        "indices=0",
        "values=1",
        "values=1e999",
        "model=",
        "%00",
        "x=%ff",
        "&&",
        "indices=,",
    ]
    for _ in range(COUNT):
        query = "&".join(draw.choices(pieces, k=draw.randint(0, 5)))
        answer = served.http.get(f"/transform?{query}")
        assert answer.status_code in (200, *REFUSALS), (query, answer.text)
