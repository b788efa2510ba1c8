"""Access: tokens for reading and writing, loopback without one, no secret in an answer or a log."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.auth import check_host
from service.settings import Settings
from tests.service.serving import Served, in_thread

READ, WRITE = "read-token-0123", "write-token-4567"
OPEN = ["/livez", "/readyz", "/"]
READING = ["/stream", "/models", "/metrics", "/models/none", "/jobs/none", "/transform?model=none&x=1"]
WRITING = [
    ("PUT", "/models/new"),
    ("DELETE", "/models/none"),
    ("POST", "/partial_fit"),
    ("POST", "/unlearn"),
    ("POST", "/models/none/snapshot"),
    ("DELETE", "/jobs/none"),
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with in_thread(tmp_path_factory.mktemp("access"), read_token=READ, write_token=WRITE) as served:
        yield served


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize("path", OPEN)
def test_health_and_the_empty_page_need_no_token(served: Served, path: str) -> None:
    assert served.http.get(path).status_code == 200


@pytest.mark.parametrize("path", READING)
def test_reading_takes_either_token(served: Served, path: str) -> None:
    for headers in ({}, bearer("wrong-token"), {"Authorization": READ}, {"Authorization": f"Basic {READ}"}):
        answer = served.http.get(path, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
        assert answer.headers["www-authenticate"].startswith("Bearer")
    for token in (READ, WRITE):
        assert served.http.get(path, headers=bearer(token)).status_code != 401


@pytest.mark.parametrize(("method", "path"), WRITING)
def test_writing_takes_the_write_token_alone(served: Served, method: str, path: str) -> None:
    body = {"estimator": "lda", "rows": [[1.0]]}
    for headers in ({}, bearer(READ), bearer("wrong-token")):
        answer = served.http.request(method, path, headers=headers, json=body)
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized"), answer.text
    assert served.http.request(method, path, headers=bearer(WRITE), json=body).status_code != 401


def test_the_api_description_says_where_a_token_is_needed(served: Served) -> None:
    told = served.http.get("/openapi.json").json()
    assert told["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    for path, methods in told["paths"].items():
        for method, operation in methods.items():
            answer = served.http.request(method, path.replace("{name}", "none").replace("{id}", "none"), json={})
            assert (answer.status_code == 401) == (operation.get("security") == [{"token": []}]), (method, path)


def test_without_a_token_the_api_description_names_none(tmp_path: Path) -> None:
    with in_thread(tmp_path) as open_to_all:
        assert "security" not in open_to_all.http.get("/openapi.json").text


def test_a_token_that_is_not_ascii_is_wrong_and_nothing_more(served: Served) -> None:
    assert served.http.get("/stream", headers={b"Authorization": "Bearer é".encode()}).status_code == 401


def test_tokens_stay_out_of_logs_and_answers(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    answers = [
        served.http.get("/stream", headers=bearer("wrong-" + WRITE)),
        served.http.get("/metrics", headers=bearer(READ)),
    ]
    told = caplog.text + "".join(answer.text + str(answer.headers) for answer in answers)
    assert READ not in told
    assert WRITE not in told


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "example.org"])
def test_others_need_a_token(host: str) -> None:
    with pytest.raises(ValueError, match="no token is set"):
        check_host(Settings(host=host))
    check_host(Settings(host=host, write_token=WRITE))


def test_without_a_token_other_pages_may_not_call(tmp_path: Path) -> None:
    with in_thread(tmp_path) as served:
        assert served.http.get("/stream").status_code == 200
        assert served.http.get("/stream", headers={"Origin": served.url}).status_code == 200
        for headers in (
            {"Origin": "https://example.org"},
            {"Origin": "null"},
            {"Host": "evil.example.org"},
            {"Host": "testserver"},
            {"Host": "[::1"},
            {"Origin": "http://[::1"},
        ):
            assert served.http.get("/stream", headers=headers).json()["code"] == "forbidden"
