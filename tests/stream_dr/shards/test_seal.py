"""Seals: every flipped bit is seen, and so is another digest."""

import numpy as np
import pyarrow as pa

from stream_dr.shards.folder import seal_checksum


def test_a_flipped_bit_or_another_digest_breaks_it() -> None:
    data = bytearray(np.random.default_rng(2).integers(0, 256, 77, dtype=np.uint8))
    digest = "0123456789abcdef" * 4
    seal = seal_checksum(pa.py_buffer(bytes(data)), digest)
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        assert seal_checksum(data, digest) != seal
        data[bit // 8] ^= 1 << bit % 8
    assert seal_checksum(data, digest) == seal
    assert seal_checksum(data, "1" + digest[1:]) != seal
