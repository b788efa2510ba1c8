"""Seals: XXH64 as published, and every flipped bit is seen."""

import numpy as np
import pyarrow as pa
import pytest

from stream_dr.streams.seal import seal_of, xxh64
from tests.naive import checksum


@pytest.mark.parametrize(
    ("data", "seed", "expected"),
    [
        (b"", 0, 0xEF46DB3751D8E999),
        (b"a", 0, 0xD24EC4F1A98C6E5B),
        (b"abc", 0, 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0, 0xFBCEA83C8A378BF1),
        (b"I want an unsigned 64-bit seed!", 2**64 - 1, 0x5D714AF8FD50E4AF),
    ],
)
def test_published_values(data: bytes, seed: int, expected: int) -> None:
    assert xxh64(data, seed) == expected


def test_every_length_agrees_with_the_obvious_version() -> None:
    data = np.random.default_rng(1).integers(0, 256, 200, dtype=np.uint8).tobytes()
    for length in range(200):
        assert xxh64(data[:length], length) == checksum.xxh64(data[:length], length)


def test_a_flipped_bit_or_another_digest_breaks_it() -> None:
    data = bytearray(np.random.default_rng(2).integers(0, 256, 77, dtype=np.uint8))
    digest = "0123456789abcdef" * 4
    seal = seal_of(pa.py_buffer(bytes(data)), digest)
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        assert seal_of(data, digest) != seal
        data[bit // 8] ^= 1 << bit % 8
    assert seal_of(data, digest) == seal
    assert seal_of(data, "1" + digest[1:]) != seal
