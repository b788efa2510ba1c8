"""PairTable: sums by key, as a dictionary would hold them."""

import numpy as np

from stream_dr.statistics.moments.pair_table import PairTable


def held(table):
    keys, sums = table.copies()
    return {int(k): float(v) for k, v in zip(keys, sums, strict=True) if k >= 0}


def test_sums_by_key_through_growth_and_restore():
    random = np.random.default_rng(2)
    table, expected = PairTable(np.zeros(0, dtype=np.int64), np.zeros(0)), {}
    for _ in range(30):
        keys = (random.integers(0, 40, 500) << 32) | random.integers(0, 50000, 500)
        values = random.integers(-5, 6, 500).astype(float)
        table.add(keys, values)
        for k, v in zip(keys.tolist(), values.tolist(), strict=True):
            expected[k] = expected.get(k, 0.0) + v
        table = PairTable(*table.copies())
    assert held(table) == expected
    assert np.count_nonzero(table.copies()[0] >= 0) <= 0.6 * len(table.copies()[0])


def test_join_renames_the_high_part_and_clear_zeroes_it():
    a, b = (PairTable(np.zeros(0, dtype=np.int64), np.zeros(0)) for _ in range(2))
    a.add(np.array([(1 << 32) | 5]), np.array([2.0]))
    b.add(np.array([(0 << 32) | 5, (1 << 32) | 6]), np.array([3.0, 4.0]))
    a.join(*b.copies(), np.array([1, 0]), 32)
    assert held(a) == {(1 << 32) | 5: 5.0, 6: 4.0}
    a.clear(np.array([1]), 32)
    assert held(a) == {(1 << 32) | 5: 0.0, 6: 4.0}
