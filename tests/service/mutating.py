"""Mutating: Arrow streams and JSON bodies that are nearly right, from a seed."""

import copy
import random
from typing import Any

import numpy as np
import orjson
import scipy.sparse as sp

from tests.service.serving import arrow, sparse_arrow

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
