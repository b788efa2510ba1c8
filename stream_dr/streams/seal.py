"""seal: whether a file still has the bytes that were written, at the speed of memory.

A shard's name in the log is its SHA-256, which takes longer to compute (0.5 ms a megabyte) than many models take to learn
the rows. Who writes a shard therefore keeps a seal beside the digest: XXH64 of the bytes [Y. Collet, XXH64], begun from
the first 64 bits of the digest. A seal that fits says that file and digest are those written together; one that does not
says nothing, and the digest decides.

Cost: 0.1 ms a megabyte, without the GIL (`python benchmarks/replay_rate.py`).

Why this way: a seal is to find damage, by accident one chance in 2^64 to miss it; it is no proof against who means harm, who
could as well write another digest into the manifest. What is read is checked row by row in either case.
"""

from typing import Any

import numpy as np

from stream_dr.compiled import compiled

_A, _B, _C, _D, _E = (
    np.uint64(prime)
    for prime in (
        11400714785074694791,
        14029467366897019727,
        1609587929392839161,
        9650029242287828579,
        2870177450012600261,
    )
)


def seal_of(data: Any, sha256: str) -> str:
    """The seal (16 hex digits) of bytes whose SHA-256 (hex) is said to be `sha256`. data: bytes-like."""
    return f"{xxh64(data, int(sha256[:16], 16)):016x}"


def xxh64(data: Any, seed: int = 0) -> int:
    """XXH64 of bytes-like data."""
    flat = np.frombuffer(data, dtype=np.uint8)
    whole = len(flat) & ~7
    return int(_xxh64(flat[:whole].view("<u8"), flat[whole:], np.uint64(seed)))


@compiled(inline="always")
def _turned(value: Any, bits: int) -> Any:
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


@compiled(inline="always")
def _round(lane: Any, word: Any) -> Any:
    return _turned(lane + word * _B, 31) * _A


@compiled(inline="always")
def _merged(total: Any, lane: Any) -> Any:
    return (total ^ _round(np.uint64(0), lane)) * _A + _D


@compiled()
def _xxh64(words: np.ndarray, rest: np.ndarray, seed: Any) -> Any:
    """words: (n,) uint64, little-endian. rest: fewer than 8 bytes after them."""
    stripes = len(words) // 4
    total = seed + _E
    if stripes:
        a, b, c, d = seed + _A + _B, seed + _B, seed, seed - _A
        for i in range(stripes):
            a = _round(a, words[4 * i])
            b = _round(b, words[4 * i + 1])
            c = _round(c, words[4 * i + 2])
            d = _round(d, words[4 * i + 3])
        total = _turned(a, 1) + _turned(b, 7) + _turned(c, 12) + _turned(d, 18)
        total = _merged(_merged(_merged(_merged(total, a), b), c), d)
    total += np.uint64(8 * len(words) + len(rest))
    for i in range(4 * stripes, len(words)):
        total = _turned(total ^ _round(np.uint64(0), words[i]), 27) * _A + _D
    return _ended(total, rest)


@compiled(inline="always")
def _ended(total: Any, rest: np.ndarray) -> Any:
    """The last bytes, and every bit of the result made to depend on every other."""
    at = 0
    if len(rest) >= 4:
        half = np.uint64(0)
        for i in range(4):
            half |= np.uint64(rest[i]) << np.uint64(8 * i)
        total, at = _turned(total ^ (half * _A), 23) * _B + _C, 4
    for i in range(at, len(rest)):
        total = _turned(total ^ (np.uint64(rest[i]) * _E), 11) * _A
    total = (total ^ (total >> np.uint64(33))) * _B
    total = (total ^ (total >> np.uint64(29))) * _C
    return total ^ (total >> np.uint64(32))
