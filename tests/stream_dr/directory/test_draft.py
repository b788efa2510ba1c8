"""A body is taken as what it was declared, and read again as what it was."""

import random

import numpy as np
import pyarrow as pa
import pytest

from stream_dr.batch.arrow import write_arrow
from stream_dr.directory.draft import json_or_arrow, parse_rows, rows_draft
from stream_dr.errors import MalformedInput, StreamDRError
from tests.support.batches import body, dense, sparse

JSON = b' \n{"rows": [[1, 2], [3, 1]], "labels": ["a", "b"]}'
ARROW = body(dense(1, rows=4))


def legacy(first_length: int) -> bytes:
    """A stream of the format before Arrow 0.15, whose first four bytes are this length of its schema."""
    column = pa.array(["a", "b", "a"])
    for padding in range(first_length - 700, first_length):
        fields = pa.schema([("x", pa.float64()), ("label", pa.string())], {"p": "x" * padding})
        stream = write_arrow([pa.record_batch([pa.array(np.arange(3.0)), column], schema=fields)])
        if int.from_bytes(stream[4:8], "little") == first_length:
            return stream.replace(b"\xff\xff\xff\xff", b"")
    raise AssertionError(f"no padding gives the length {first_length}")


@pytest.mark.parametrize("first_bytes", [b" {", b" [", b"@Z"])
def test_a_legacy_stream_is_refused_though_it_may_look_like_json(first_bytes: bytes) -> None:
    stream = legacy(int.from_bytes(first_bytes, "little"))
    assert pa.ipc.open_stream(stream).read_all().num_rows == 3
    with pytest.raises(MalformedInput, match=r"0\.15"):
        rows_draft(stream, "arrow")
    with pytest.raises(MalformedInput):
        rows_draft(stream, "json")


@pytest.mark.parametrize(
    ("sent", "media"),
    [(JSON, "arrow"), (ARROW, "json"), (b"PAR1\x15\x04", "arrow"), (b"\x93NUMPY", "arrow"), (b"", "arrow")],
)
def test_first_bytes_that_contradict_the_declared_format_are_refused(sent: bytes, media: str) -> None:
    with pytest.raises(MalformedInput, match=f"declared {media}"):
        rows_draft(sent, media)


@pytest.mark.parametrize("media", ["json", "arrow"])
def test_whatever_is_accepted_is_read_again_as_what_it_was(media: str) -> None:
    chance = random.Random(3)
    bodies = [JSON, ARROW, body(sparse(2, rows=3))]
    accepted = 0
    for _ in range(3000):
        mutated = bytearray(chance.choice(bodies))
        for _ in range(chance.randrange(3)):
            mutated[chance.randrange(min(len(mutated), 60))] = chance.choice(b" {[A\xff\n\t\0")
        try:
            draft = rows_draft(bytes(mutated), media)
        except StreamDRError:
            continue
        accepted += 1
        assert json_or_arrow(draft.body) == media
        assert parse_rows(draft.body, json_or_arrow(draft.body), None).rows == draft.rows
    assert accepted > 100
