"""seal: whether a shard still has the bytes that were written, at the speed of memory.

A shard's name in the log is its SHA-256, which takes longer to compute than many models take to learn the rows. Who writes
a shard therefore keeps a seal beside the digest: XXH64 of the bytes [XXH64], begun from the first 64 bits of the digest. A
seal that fits says that file and digest are those written together; one that does not says nothing, and the digest decides.

A seal finds damage; it is no proof against who means harm, who could as well write another digest into the manifest.
"""

from typing import Any

import xxhash


def seal_of(data: Any, sha256: str) -> str:
    """The seal (16 hex digits) of bytes whose SHA-256 (hex) is said to be `sha256`. data: bytes-like."""
    return xxhash.xxh64_hexdigest(data, int(sha256[:16], 16))
