"""Bodies: sizes, types, time and memory are bounded before a route sees a byte."""

import asyncio
import json
from typing import Any

import pytest

from service.bodies import ARROW, Bodies, Bounds
from service.settings import Settings

LIMITS = Settings(max_body_bytes=1_000, max_json_bytes=100, max_queue_bytes=1_500, body_timeout=0.2)


class Sent:
    """What an ASGI app answered to one request, and what the route got."""

    def __init__(self, chunks: list[bytes], path: str = "/partial_fit", pause: float = 0.0, **headers: str) -> None:
        self.chunks, self.pause = list(chunks), pause
        told = {"content-type": ARROW[0], "transfer-encoding": "chunked"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        pairs = [(k.encode(), v.encode()) for k, v in told.items() if v]
        self.scope = {"type": "http", "method": "POST", "path": path, "headers": pairs}
        self.messages: list[dict[str, Any]] = []
        self.body: bytes | None = None
        self.reads = 0

    async def receive(self) -> dict[str, Any]:
        self.reads += 1
        if self.pause:
            await asyncio.sleep(self.pause)
        if not self.chunks:
            return {"type": "http.disconnect"}
        body = self.chunks.pop(0)
        return {"type": "http.request", "body": body, "more_body": bool(self.chunks)}

    async def send(self, message: Any) -> None:
        self.messages.append(message)

    async def route(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message["body"]
            if not message["more_body"]:
                break
        self.body = body
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    def through(self, settings: Settings = LIMITS) -> Bodies:
        bodies = Bodies(self.route, Bounds(settings))
        asyncio.run(bodies(self.scope, self.receive, self.send))
        assert bodies.bounds.bytes == 0
        return bodies

    @property
    def status(self) -> int:
        return self.messages[0]["status"]

    @property
    def code(self) -> str:
        return json.loads(b"".join(m.get("body", b"") for m in self.messages))["code"]


def test_a_body_within_its_bound_passes_unchanged() -> None:
    sent = Sent([b"a" * 600, b"b" * 400])
    sent.through()
    assert (sent.status, sent.body) == (200, b"a" * 600 + b"b" * 400)


def test_a_declared_length_is_refused_before_the_body_is_read() -> None:
    sent = Sent([b"a" * 2_000], content_length="2000", transfer_encoding="")
    order = []
    sent.receive, receive = lambda: order.append("read") or receive(), sent.receive  # type: ignore[method-assign]
    sent.send, send = lambda m: order.append(m["type"]) or send(m), sent.send  # type: ignore[method-assign]
    sent.through()
    assert (sent.status, sent.code, sent.body) == (413, "body_too_large", None)
    assert order.index("http.response.start") < order.index("read")


def test_a_chunked_body_is_refused_at_the_byte_that_is_too_many() -> None:
    sent = Sent([b"a" * 600, b"b" * 401, b"c"])
    sent.through()
    assert (sent.status, sent.code, sent.body) == (413, "body_too_large", None)


def test_json_has_a_bound_of_its_own() -> None:
    sent = Sent([b"[" + b"1," * 60], content_type="application/json; charset=utf-8")
    sent.through()
    assert (sent.status, sent.code) == (413, "body_too_large")


@pytest.mark.parametrize(
    ("path", "content_type", "encoding"),
    [
        ("/partial_fit", "text/csv", ""),
        ("/partial_fit", "", ""),
        ("/models/a", ARROW[0], ""),
        ("/transform", ARROW[0], "gzip"),
        ("/nowhere", "image/png", ""),
    ],
)
def test_types_that_no_route_reads(path: str, content_type: str, encoding: str) -> None:
    sent = Sent([b"abc"], path, content_type=content_type, content_encoding=encoding)
    sent.through()
    assert (sent.status, sent.code, sent.body) == (415, "unsupported_media_type", None)


def test_a_body_that_does_not_arrive_in_time() -> None:
    sent = Sent([b"a"] * 100, pause=0.05)
    sent.through()
    assert (sent.status, sent.code) == (408, "request_timeout")
    assert sent.reads < 10


def test_no_memory_left_is_429_and_memory_comes_back() -> None:
    bodies = Bodies(Sent([]).route, Bounds(LIMITS))
    bodies.bounds.bytes = 1_000
    sent = Sent([b"a" * 300, b"b" * 300])
    bodies.app = sent.route
    asyncio.run(bodies(sent.scope, sent.receive, sent.send))
    assert (sent.status, sent.code) == (429, "overloaded")
    assert (b"retry-after", b"1") in sent.messages[0]["headers"]
    assert bodies.bounds.bytes == 1_000


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize(
    ("limits", "setting"),
    [
        ({"max_queue_bytes": 500}, "max_queue_bytes"),
        ({"max_body_bytes": 500}, "max_body_bytes"),
        ({"max_json_bytes": 400, "max_queue_bytes": 500}, "max_queue_bytes"),
    ],
)
def test_a_body_that_could_never_be_held_is_413_and_the_limit_is_named(
    limits: dict[str, int], setting: str, declared: bool
) -> None:
    told = {"content_length": "600", "transfer_encoding": ""} if declared else {}
    sent = Sent([b"a" * 300, b"b" * 300], **told)
    sent.through(Settings(**limits))
    assert (sent.status, sent.code, sent.body) == (413, "body_too_large", None)
    assert f"at most 500 are taken ({setting})" in sent.messages[1]["body"].decode()


def test_requests_without_a_body_are_left_alone() -> None:
    sent = Sent([b""], content_type="", transfer_encoding="")
    sent.through()
    assert sent.body == b""


def test_a_length_that_is_no_number() -> None:
    sent = Sent([b"abc"], content_length="x")
    sent.through()
    assert (sent.status, sent.code) == (400, "bad_request")
