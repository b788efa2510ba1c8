"""Access: tokens for reading and writing, loopback without one, no secret in an answer or a log."""

import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from service.guards import PUBLIC_PATH_PREFIXES, PUBLIC_PATHS, refuse_unguarded_host
from service.settings import Settings
from tests.support.serving import ROOT, Served, in_thread

READ, WRITE = "read-token-0123", "write-token-4567"
WRONG = (
    "Bearer wrong-token",
    f"Bearer {READ}x",
    f"Bearer {WRITE[:-1]}",
    f"Bearer {READ}{WRITE}",
    f"Bearer {WRITE.upper()}",
)
MALFORMED = (
    *("", READ, WRITE, "Bearer", "Bearer ", "Bearer \xe9", f"Basic {WRITE}", f"Bearer: {WRITE}", f"Bearer{WRITE}"),
    *(f"Bearer {WRITE} {READ}", f"Bearer {WRITE},", f"Token {WRITE}", f'Bearer "{WRITE}"', f"Bearer {READ}\t{WRITE}"),
)
ROWS_WITHOUT_ROUTE = ("| any other, GET or HEAD | read |", "| any other | write |")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with in_thread(tmp_path_factory.mktemp("access"), read_token=READ, write_token=WRITE) as served:
        yield served


@pytest.fixture(scope="module")
def open_to_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service without a token."""
    with in_thread(tmp_path_factory.mktemp("open")) as served:
        yield served


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def status(served: Served, method: str, target: str, authorization: str | None) -> int:
    """The status of an answer to a request that is sent as it stands here."""
    line = "" if authorization is None else f"Authorization: {authorization}\r\n"
    head = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n{line}\r\n"
    with socket.create_connection(("127.0.0.1", int(served.url.rpartition(":")[2])), 20) as connection:
        connection.sendall(head.encode("latin-1"))
        told = connection.recv(10_000)
    found = int(told.split()[1])
    assert (b'Bearer realm="stream_dr"' in told) == (found == 401)
    return found


def needs(served: Served, method: str, target: str) -> str:
    """What a request needs: "nothing", "read" or "write"; every other token is as none."""
    passes = {given: status(served, method, target, given) != 401 for given in (None, *WRONG, *MALFORMED)}
    assert len(set(passes.values())) == 1, (method, target, passes)
    read, write = (
        {status(served, method, target, f"{scheme} {token}") != 401 for scheme in ("Bearer", "bearer", "Bearer  ")}
        for token in (READ, WRITE)
    )
    assert write == {True}, (method, target)
    assert len(read) == 1
    return "nothing" if passes[None] else "read" if read == {True} else "write"


def routes(served: Served) -> list[tuple[str, str]]:
    """(method, path) of every route, by path: of those that the API description has, and of pages."""
    told = served.http.get("/openapi.json").json()["paths"]
    found = {(method.upper(), path) for path, methods in told.items() for method in methods}
    return sorted(
        found | {("GET", path) for path in (*PUBLIC_PATHS, *(f"{folder}…" for folder in PUBLIC_PATH_PREFIXES))},
        key=lambda route: route[::-1],
    )


@pytest.mark.test_all
def test_every_route_with_every_token_as_the_documentation_has_it(served: Served) -> None:
    table = ["| request | token |", "|---|---|"]
    for method, path in routes(served):
        target = path.replace("{name}", "none").replace("{id}", "none").replace("…", "none")
        table.append(f"| `{method} {path}` | {needs(served, method, target)} |")
    for method, row in (
        ("GET", 0),
        ("HEAD", 0),
        ("POST", 1),
        ("DELETE", 1),
        ("OPTIONS", 1),
        ("TRACE", 1),
        ("PATCH", 1),
    ):
        assert f"| {needs(served, method, '/nowhere')} |" in ROWS_WITHOUT_ROUTE[row]
    told = "\n".join([*table, *ROWS_WITHOUT_ROUTE])
    assert told in (ROOT / "docs/deploy/README.md").read_text(), f"docs/deploy/README.md is to have:\n{told}"


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
def test_no_other_way_to_write_a_path_leads_past_the_rights(served: Served, method: str) -> None:
    """Without a token: refused, or a file of /docs that is not there."""
    for path in ("stream", "models", "models/none", "partial_fit", "transform", "metrics", "events"):
        for written in (
            *(f"/{path}/", f"//{path}", f"/./{path}", f"/x/../{path}", f"/{path.upper()}", f"/{path}?", f"/{path}#"),
            *(
                f"/%2e/{path}",
                f"/%2F{path}",
                f"/{path}%00",
                f"/{path};x",
                f"http://localhost/{path}",
                f"/{path}/../livez",
            ),
            *(f"/docs/../{path}", f"/docs/{path}", f"/livez/{path}", f"/livez/../{path}", f"/readyz%2f..%2f{path}"),
        ):
            assert status(served, method, written, None) in (400, 401), (method, written)
        for written in (f"{PUBLIC_PATH_PREFIXES[0]}../{path}", f"{PUBLIC_PATH_PREFIXES[1]}%2e%2e/{path}"):
            assert status(served, method, written, None) in (404, 405)


def test_the_api_description_says_where_a_token_is_needed(served: Served) -> None:
    told = served.http.get("/openapi.json").json()
    assert told["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    for path, methods in told["paths"].items():
        for method, operation in methods.items():
            answer = served.http.request(method, path.replace("{name}", "none").replace("{id}", "none"), json={})
            assert (answer.status_code == 401) == (operation.get("security") == [{"token": []}]), (method, path)


def test_without_a_token_the_api_description_names_none(open_to_all: Served) -> None:
    assert "security" not in open_to_all.http.get("/openapi.json").text


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
        refuse_unguarded_host(Settings(host=host))
    refuse_unguarded_host(Settings(host=host, write_token=WRITE))


def test_without_a_token_other_pages_may_not_call(open_to_all: Served) -> None:
    http = open_to_all.http
    assert http.get("/stream").status_code == 200
    assert http.get("/stream", headers={"Origin": open_to_all.url}).status_code == 200
    for headers in (
        {"Origin": "https://example.org"},
        {"Origin": "null"},
        {"Host": "evil.example.org"},
        {"Host": "testserver"},
        {"Host": "[::1"},
        {"Origin": "http://[::1"},
    ):
        assert http.get("/stream", headers=headers).json()["code"] == "forbidden"


APP, OTHER = "https://app.example", "https://other.example"
ALLOWED = "access-control-allow-origin"


def preflight(served: Served, origin: str, method: str = "POST") -> httpx.Response:
    """What a browser asks before a page may send such a request."""
    asked = {"Access-Control-Request-Method": method, "Access-Control-Request-Headers": "content-type, authorization"}
    return served.http.options("/partial_fit", headers={"Origin": origin} | asked)


def test_pages_of_named_origins_may_call(tmp_path: Path) -> None:
    with in_thread(tmp_path, cors_origins=(APP,), write_token=WRITE) as served:
        asked = preflight(served, APP)
        assert (asked.status_code, asked.headers[ALLOWED]) == (200, APP)
        assert {"authorization", "content-type", "idempotency-key", "content-encoding"} <= set(
            asked.headers["access-control-allow-headers"].lower().split(", ")
        )
        assert ALLOWED not in preflight(served, OTHER).headers

        answer = served.http.get("/stream", headers=bearer(WRITE) | {"Origin": APP})
        assert (answer.status_code, answer.headers[ALLOWED]) == (200, APP)
        assert ALLOWED not in served.http.get("/stream", headers=bearer(WRITE) | {"Origin": OTHER}).headers
        refused = served.http.get("/stream", headers={"Origin": APP})  # an error that the page is to read
        assert (refused.status_code, refused.headers[ALLOWED]) == (401, APP)


def test_without_a_token_pages_of_named_origins_may_call_and_no_others(tmp_path: Path) -> None:
    with in_thread(tmp_path, cors_origins=(APP,)) as served:
        answer = served.http.put("/models/lda", json={"estimator": "lda"}, headers={"Origin": APP})
        assert (answer.status_code, answer.headers[ALLOWED], answer.headers["location"]) == (201, APP, "/models/lda")
        assert "location" in answer.headers["access-control-expose-headers"].lower()
        assert served.http.get("/stream", headers={"Origin": OTHER}).status_code == 403
        assert served.http.get("/stream", headers={"Origin": APP, "Host": "evil.example"}).status_code == 403


def test_any_origin_may_call_with_a_token_where_that_is_set(tmp_path: Path) -> None:
    with in_thread(tmp_path, cors_origins=("*",), write_token=WRITE) as served:
        assert preflight(served, OTHER, "DELETE").headers[ALLOWED] == "*"
        assert served.http.get("/stream", headers=bearer(WRITE) | {"Origin": OTHER}).headers[ALLOWED] == "*"
        assert served.http.get("/stream", headers={"Origin": OTHER}).status_code == 401


def test_no_origin_is_named_by_default(served: Served) -> None:
    assert preflight(served, APP).status_code == 401
    assert ALLOWED not in served.http.get("/stream", headers=bearer(WRITE) | {"Origin": APP}).headers
