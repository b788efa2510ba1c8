"""Choose few of many combinations of parameters."""

import itertools
from collections.abc import Iterable
from typing import Any


def pairwise(combinations: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return few of the combinations that contain every pair of values.

    A pair is two values of two places, which one of the combinations has. The same combinations are returned each time.
    """
    rows = list(combinations)
    # Values such as dicts have no hash, their texts have.
    pairs = [set(itertools.combinations(enumerate(map(repr, row)), 2)) for row in rows]
    missing = set().union(*pairs)
    chosen = []
    while missing:
        best = max(range(len(rows)), key=lambda i: len(pairs[i] & missing))
        missing -= pairs[best]
        chosen.append(rows[best])
    return chosen
