"""Fast checksums of shards (seals), checked in place of SHA-256.

The log identifies a shard by its SHA-256. Computing the SHA-256 takes longer than many models take
to learn the rows. So the writer of a shard stores a second checksum, the seal. The seal is XXH64
of the bytes [XXH64], with the first 64 bits of the SHA-256 as its seed. If the seal is right, the
bytes and the SHA-256 were written together. If the seal is wrong, the SHA-256 of the bytes is
computed, and decides whether the shard is damaged.

A seal detects damage. It does not protect against an attacker, who could as well write another
SHA-256 into the manifest.
"""

import mmap

import pyarrow as pa
import xxhash


def seal_checksum(data: bytes | memoryview | mmap.mmap | pa.Buffer, sha256_as_seed: str) -> str:
    """Return the fast checksum (the seal) of a shard's bytes.

    The seal has 16 hex digits. It is XXH64 of the bytes, seeded with the first 64 bits of
    `sha256_as_seed`.

    sha256_as_seed: SHA-256 of these bytes in hex, as the manifest states it.
    """
    return xxhash.xxh64_hexdigest(data, int(sha256_as_seed[:16], 16))
