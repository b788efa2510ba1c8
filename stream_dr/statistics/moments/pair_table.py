"""PairTable: a hash table of sums keyed by 64-bit integers, in two flat arrays.

It uses open addressing and linear probing. The two arrays are the whole state. A saved and
restored table has the same slots, so it continues bit-equal. Adding a value costs one lookup
(20-50 ns). A slot takes 16 bytes. At most 60 % of the slots are in use, and the number of slots
doubles when more are needed.
"""

import numpy as np

from stream_dr.compiled import compiled

FULL = 0.6
"""Largest share of slots that may be in use."""


@compiled(forceinline=True)
def _find_slot(keys: np.ndarray, key: int) -> int:
    """Return the slot of a key in the hash table.

    If the key is not in the table, return the free slot that it would take.

    keys: (slots,) int64, −1 in free slots.
    """
    mask = len(keys) - 1
    mixed = key * 0x9E3779B97F4A7C1
    at = (mixed ^ (mixed >> 32)) & mask
    while keys[at] != key and keys[at] != -1:
        at = (at + 1) & mask
    return at


@compiled()
def _add_to_slots(keys: np.ndarray, sums: np.ndarray, new: np.ndarray, values: np.ndarray) -> int:
    """Add values to the sums of their keys, and return the number of new keys.

    keys: (slots,) int64 keys of the table, −1 in free slots.
    sums: (slots,) sums of the table.
    new: (n,) key of each value.
    values: (n,).
    """
    added = 0
    for i in range(len(new)):
        at = _find_slot(keys, new[i])
        if keys[at] == -1:
            keys[at] = new[i]
            added += 1
        sums[at] += values[i]
    return added


class PairTable:
    """Hash table of float64 sums by integer key ≥ 0."""

    def __init__(self, keys: np.ndarray, sums: np.ndarray) -> None:
        """Take ownership of the table's two arrays.

        keys: (slots,) int64, −1 in free slots. The number of slots is 0 or a power of two.
        sums: (slots,) float64.
        """
        self._keys, self._sums = keys, sums
        self._used = int(np.count_nonzero(keys >= 0))

    def copies(self) -> tuple[np.ndarray, np.ndarray]:
        """Return copies of the keys (slots,) and the sums (slots,)."""
        return self._keys.copy(), self._sums.copy()

    def add(self, keys: np.ndarray, values: np.ndarray) -> None:
        """Add each value to the sum of its key. A key may occur several times.

        keys: (n,) int64.
        values: (n,).
        """
        self._make_room(self._used + len(keys))
        if len(keys):
            self._used += _add_to_slots(self._keys, self._sums, keys.astype(np.int64, copy=False), values)

    def join(self, keys: np.ndarray, sums: np.ndarray, high: np.ndarray, shift: int) -> None:
        """Add the sums of another table, with part of its keys replaced.

        The bits of a key above the lowest `shift` bits are a number h, which becomes high[h].

        keys: (slots,) int64 keys of the other table, −1 in free slots.
        sums: (slots,) sums of the other table.
        high: new value of each number h.
        """
        there = np.flatnonzero(keys >= 0)
        there = there[np.argsort(keys[there])]
        own = (high[keys[there] >> shift] << shift) | (keys[there] & ((1 << shift) - 1))
        self.add(own, sums[there])

    def clear(self, high: np.ndarray, shift: int) -> None:
        """Set the sums of some keys to zero.

        They are the keys whose bits above the lowest `shift` bits are a number in high.
        """
        self._sums[(self._keys >= 0) & np.isin(self._keys >> shift, high)] = 0.0

    def rescale(self, factor: float) -> None:
        """Multiply every sum by factor."""
        self._sums *= factor

    def _make_room(self, wanted: int) -> None:
        """Make room for `wanted` keys. The number of slots doubles if needed."""
        slots = max(64, len(self._keys))
        while wanted > FULL * slots:
            slots *= 2
        if slots == len(self._keys):
            return
        there = np.flatnonzero(self._keys >= 0)
        old, values = self._keys[there], self._sums[there]
        self._keys, self._sums = np.full(slots, -1, dtype=np.int64), np.zeros(slots)
        if len(old):
            _add_to_slots(self._keys, self._sums, old, values)
