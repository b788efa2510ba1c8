"""kill -9 at random moments loses nothing that was acknowledged and doubles nothing that was retried."""

import random
from pathlib import Path

import pytest

from tests.support import crash

KILLS = 8


@pytest.mark.test_all
@pytest.mark.parametrize("turn", crash.TURNS)
def test_kills_at_random_moments(tmp_path: Path, turn: str) -> None:
    """The short form of `python -m tests.campaigns.kills service`."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    left = crash.run(tmp_path, KILLS, seed, ("one", "two"), turn=crash.TURNS[turn])
    assert left.at_failpoints == KILLS // 2
    assert crash.check(left, tmp_path / "reference") > KILLS


@pytest.mark.test_all
def test_it_is_noticed_when_the_answer_comes_before_the_commit(tmp_path: Path) -> None:
    left = crash.run(tmp_path, 3, seed=1, answer_first=True)
    with pytest.raises(AssertionError, match=r"acknowledged|gap"):
        crash.check(left, tmp_path / "reference")
