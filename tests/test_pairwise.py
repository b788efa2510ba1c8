"""Every pair of values is in one of the few combinations."""

from itertools import combinations, product

import pytest

from tests.support.pairwise import pairwise


@pytest.mark.parametrize("axes", [(range(3), "abc", [{}, {"a": 1}]), ("ab", "ab", "ab", "ab", "ab"), (range(5), "ab")])
def test_every_pair_is_there_and_most_combinations_are_not(axes: tuple) -> None:
    every, few = list(product(*axes)), pairwise(product(*axes))
    assert len(few) < len(every) / 1.5 or len(axes) == 2
    assert few == pairwise(every)
    for i, j in combinations(range(len(axes)), 2):
        assert all((a, b) in [(row[i], row[j]) for row in few] for a, b in product(axes[i], axes[j]))


def test_a_pair_that_no_combination_has_is_not_asked_for() -> None:
    every = [row for row in product("ab", "cd", "ef") if row[:2] != ("a", "c")]
    few = pairwise(every)
    assert set(few) <= set(every)
    assert {row[1:] for row in few} == {row[1:] for row in every}
