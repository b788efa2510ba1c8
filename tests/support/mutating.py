"""Mutating: Arrow streams and JSON bodies that are nearly right, from a seed."""

import copy
import random
from typing import Any

import numpy as np
import orjson
import scipy.sparse as sp

from tests.support.serving import arrow, sparse_arrow

ROWS = np.round(np.random.default_rng(1).normal(size=(7, 3)), 3)
SOUND = (
    arrow(ROWS, list("abcabca")),
    arrow(ROWS, list("abcabca"), id=[f"r{i}" for i in range(7)]),
    arrow(ROWS),
    sparse_arrow(sp.csr_matrix(ROWS), list("abcabca")),
)
VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    2**31,
    2**63,
    1e308,
    -0.0,
    "",
    "a",
    "\x00",
    [],
    {},
    [[]],
    [None],
    {"a": 1},
    "é" * 99,
)


def arrow_stream(draw: random.Random) -> bytes:
    """A sound stream with bytes flipped, cut out, doubled, zeroed, or two streams spliced."""
    body = bytearray(draw.choice(SOUND))
    for _ in range(draw.randint(1, 6)):
        at = draw.randrange(len(body) + 1)
        to = min(len(body), at + draw.choice((1, 1, 4, 8, 64)))
        how = draw.randrange(6)
        if how == 0 and at < len(body):
            body[at] ^= 1 << draw.randrange(8)
        elif how == 1:
            body[at:to] = draw.randbytes(to - at)
        elif how == 2:
            body[at:to] = b""
        elif how == 3:
            body[at:at] = body[at:to]
        elif how == 4:
            body[at:to] = draw.choice((b"\x00", b"\xff")) * (to - at)
        else:
            body[at:] = draw.choice(SOUND)[at:]
    return bytes(body)


def json_batch(draw: random.Random) -> bytes:
    """A sound JSON batch with keys, rows or values replaced, or bytes flipped."""
    batch: dict[str, Any] = {"rows": ROWS.tolist(), "labels": list("abcabca")}
    if draw.random() < 0.5:
        batch["rows"] = [{"indices": [0, 2], "values": [1.0, 2.0]} for _ in ROWS]
    for _ in range(draw.randint(1, 3)):
        _replace(draw, batch)
    body = bytearray(orjson.dumps(batch, option=orjson.OPT_NON_STR_KEYS))
    if draw.random() < 0.3:
        body[draw.randrange(len(body))] = draw.randrange(256)
    return bytes(body)


def request(draw: random.Random, body: bytes, kind: str) -> bytes:
    """A request for learning or projecting these rows, whole, its head changed up to three times."""
    method, target, version = (
        "POST",
        draw.choice(("/partial_fit", "/partial_fit?check", "/transform?model=lda")),
        "HTTP/1.1",
    )
    head = [["Host", "127.0.0.1"], ["Content-Type", kind], ["Content-Length", str(len(body))], ["Connection", "close"]]
    for _ in range(draw.randint(1, 3)):
        match draw.randrange(8):
            case 0:
                method = draw.choice(
                    ("GET", "PUT", "DELETE", "OPTIONS", "HEAD", "TRACE", "CONNECT", "PRI", "post", "", "\x00")
                )
            case 1:
                target = (
                    draw.choice(TARGETS)
                    if draw.random() < 0.5
                    else target + draw.choice(("&wait=", "&%00", "#", "?" * 9))
                )
            case 2:
                version = draw.choice(("HTTP/1.0", "HTTP/2", "HTTP/0.9", "HTTP/1.1 ", "", "HTTP/9.9"))
            case 3:
                length = (
                    0,
                    -1,
                    len(body) - 1,
                    len(body) + 1,
                    2**31,
                    2**63,
                    10**30,
                    "0x10",
                    "1e3",
                    "+5",
                    " 5",
                    "5, 5",
                    "",
                )
                head.append(["Content-Length", str(draw.choice(length))])
                if draw.random() < 0.7:
                    head = [line for line in head if line[0] != "Content-Length" or line is head[-1]]
            case 4:
                coding = draw.choice(("chunked", "gzip, chunked", "chunked, chunked", "identity", "Chunked ", "x"))
                head.append(["Transfer-Encoding", coding])
                sizes = (f"{len(body):x}", f"{len(body) + 1:x}", "0", "-1", "f" * 17, f"{len(body):x};x=1", "g", "")
                body = draw.choice(sizes).encode() + b"\r\n" + body + draw.choice((b"\r\n0\r\n\r\n", b"", b"0\r\n"))
            case 5:
                head.append([draw.choice(NAMES), draw.choice(WORDS)])
            case 6 if head:
                del head[draw.randrange(len(head))]
            case _:
                head.append(list(draw.choice(head)) if head else ["", ""])
    lines = [f"{method} {target} {version}", *(f"{name}: {value}" for name, value in head)]
    return draw.choice(("\r\n", "\r\n", "\r\n", "\n")).join([*lines, "", ""]).encode("utf8", "replace") + body


NAMES = (
    "Idempotency-Key",
    "Authorization",
    "Expect",
    "Origin",
    "Accept",
    "Accept-Encoding",
    "Content-Encoding",
    "Upgrade",
)
NAMES = (*NAMES, "Content-Type", "Cookie", "X" * 300, "X Y", "", "\x00", "é")
WORDS = (
    "",
    "k",
    "k" * 5_000,
    "\x00",
    "é",
    "100-continue",
    "gzip",
    "*/*;q=x",
    "Bearer x",
    "Basic ==",
    "http://x",
    "h2c",
    "a\r\n b",
)
TARGETS = (
    "*",
    "",
    "/",
    "//",
    "/../models",
    "/models/%2e%2e",
    "/%ff",
    "/models/" + "a" * 9_000,
    "http://x/stream",
    "/stream?" + "a" * 9_000,
)


def spec(draw: random.Random) -> bytes:
    """A model's spec with something replaced."""
    told: dict[str, Any] = {"estimator": "lda", "params": {"gamma": 1.0, "n_components": 2}, "from": "start"}
    _replace(draw, told)
    _replace(draw, told)
    return orjson.dumps(told)


def _replace(draw: random.Random, told: Any) -> None:
    """Replace, add or remove something, at any depth."""
    if isinstance(told, dict) and told:
        key = draw.choice([*told, "more"])
        if key in told and draw.random() < 0.6 and isinstance(told[key], dict | list):
            _replace(draw, told[key])
        elif draw.random() < 0.2:
            told.pop(key, None)
        else:
            told[key] = copy.deepcopy(draw.choice(VALUES)) if draw.random() < 0.9 else float("nan")
    elif isinstance(told, list) and told:
        at = draw.randrange(len(told))
        if isinstance(told[at], dict | list) and draw.random() < 0.6:
            _replace(draw, told[at])
        else:
            told[at] = copy.deepcopy(draw.choice(VALUES))
