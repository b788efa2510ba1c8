"""Seals: fast checksums of shards, which replace the digest if they fit.

A shard's name in the log is its SHA-256, which takes longer to compute than many models take to
learn the rows. So the writer of a shard stores a seal in addition to the digest. The seal is XXH64
of the bytes [XXH64], with the first 64 bits of the digest as its seed. A seal that fits shows that
file and digest were written together. A seal that does not fit shows nothing, and the digest
decides.

A seal detects damage. It does not protect against an attacker, who could as well write another
digest into the manifest.
"""

import mmap

import pyarrow as pa
import xxhash


def seal_of(data: bytes | memoryview | mmap.mmap | pa.Buffer, sha256: str) -> str:
    """Return the seal of bytes, 16 hex digits.

    `sha256` is the digest in hex that the bytes are said to have.
    """
    return xxhash.xxh64_hexdigest(data, int(sha256[:16], 16))
