"""folds: the fold of each row, one value after another, and a state learned from the rows of each fold."""

import struct
from typing import Any

import xxhash

MASK = (1 << 64) - 1


def mix(x: int) -> int:
    """The last step of splitmix64."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def bits(value: float) -> int:
    """The bits of a number as float32."""
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def text(value: str) -> int:
    """The hash of a text."""
    return int(xxhash.xxh64_intdigest(value.encode()))


def values_sum(values: Any, columns: Any) -> int:
    """Sum over a row's values that are not 0; columns are their numbers or hashes."""
    cells = zip(values, columns, strict=True)
    return sum(mix(bits(v) ^ mix(c)) for v, c in cells if struct.unpack("<f", struct.pack("<f", v))[0] != 0.0)


def target(y: Any) -> int:
    """What a target adds: a label, a list of labels, an array of numbers or None."""
    if y is None:
        return 0
    if hasattr(y, "dtype") and y.ndim == 1:
        return mix((values_sum(y.tolist(), range(len(y))) & MASK) ^ 0x9E3779B97F4A7C15)
    labels = y if isinstance(y, list) else [y]
    total = sum(text(str(int(one)) if isinstance(one, int) else str(one)) for one in labels)
    return mix((total & MASK) ^ 0x9E3779B97F4A7C15)


def row_hash(values: Any, y: Any, columns: Any = None) -> int:
    """The hash of one row."""
    columns = range(len(values)) if columns is None else columns
    return mix((values_sum(values, columns) + target(y)) & MASK)
