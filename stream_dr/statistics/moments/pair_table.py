"""PairTable: sums keyed by 64-bit integers, in two flat arrays.

It has open addressing and linear probing. The arrays are the state: nothing is rebuilt to save or
restore it, so a restored table continues bit-equal. A value costs one lookup (20-50 ns). A slot
takes 16 bytes. At most 60 % of the slots are in use, and their number doubles when more are
needed.
"""

import numpy as np

from stream_dr.compiled import compiled

FULL = 0.6


@compiled(forceinline=True)
def _find_slot(keys: np.ndarray, key: int) -> int:
    """Return the slot that holds key, or would. An unused slot holds −1."""
    mask = len(keys) - 1
    mixed = key * 0x9E3779B97F4A7C1
    at = (mixed ^ (mixed >> 32)) & mask
    while keys[at] != key and keys[at] != -1:
        at = (at + 1) & mask
    return at


@compiled()
def _add_to_slots(keys: np.ndarray, sums: np.ndarray, new: np.ndarray, values: np.ndarray) -> int:
    """Add values at their keys.

    Returns the number of keys that were new.
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
    """Sums by key ≥ 0."""

    def __init__(self, keys: np.ndarray, sums: np.ndarray) -> None:
        """Take ownership of keys (slots,) int64 and sums (slots,) float64.

        slots is a power of two or 0.
        """
        self._keys, self._sums = keys, sums
        self._used = int(np.count_nonzero(keys >= 0))

    def copies(self) -> tuple[np.ndarray, np.ndarray]:
        """Return copies of keys and sums."""
        return self._keys.copy(), self._sums.copy()

    def add(self, keys: np.ndarray, values: np.ndarray) -> None:
        """Add values (n,) at keys (n,) int64, repeated keys one after the other."""
        self._make_room(self._used + len(keys))
        if len(keys):
            self._used += _add_to_slots(self._keys, self._sums, keys.astype(np.int64, copy=False), values)

    def join(self, keys: np.ndarray, sums: np.ndarray, high: np.ndarray, shift: int) -> None:
        """Add another table's sums.

        The part of its keys above `shift` bits is replaced through high.
        """
        there = np.flatnonzero(keys >= 0)
        there = there[np.argsort(keys[there])]
        own = (high[keys[there] >> shift] << shift) | (keys[there] & ((1 << shift) - 1))
        self.add(own, sums[there])

    def clear(self, high: np.ndarray, shift: int) -> None:
        """Zero the sums of keys whose part above `shift` bits is in high."""
        self._sums[(self._keys >= 0) & np.isin(self._keys >> shift, high)] = 0.0

    def rescale(self, factor: float) -> None:
        """Multiply every sum by factor."""
        self._sums *= factor

    def _make_room(self, wanted: int) -> None:
        """Make slots for `wanted` keys."""
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
