"""The events that have an id are found, whatever sizes they came in, and whatever was dropped; an id is not in the index."""

import random

import pytest

from stream_dr.log.ids import id_hashes
from stream_dr.log.log import Log
from tests.support.logs import draft


def appended(log, names):
    """Append an event with these ids."""
    log.append([draft("rows", b"body", len(names))._replace(ids=id_hashes(names))])


@pytest.mark.parametrize("sizes", [[1], [1000], [1, 3000, 7], [20_000, 1]])
def test_ids_of_events_of_any_size(folder, sizes):
    chance, at = random.Random(0), {}
    with Log(folder) as log:
        while len(at) < 40_000 and log.last < 300:
            names = [f"u{len(at) + i}" for i in range(chance.choice(sizes))]
            appended(log, [*names, "everywhere"])
            at |= dict.fromkeys(names, log.last)
        for name in chance.sample(list(at), min(len(at), 50)):
            assert at[name] in log.positions_with_ids(id_hashes([name]))
        some = chance.sample(list(at), min(len(at), 200))
        assert log.positions_with_ids(id_hashes(some)) == sorted({at[name] for name in some})
        assert log.positions_with_ids(id_hashes(["everywhere"])) == list(range(log.last + 1))
        assert log.positions_with_ids(id_hashes(["nobody"])) == []
        log.verify()


def test_what_was_dropped_is_not_found(folder):
    with Log(folder) as log:
        for first in range(0, 100_000, 500):
            appended(log, range(first, first + 500))
        log.drop_events_before(150)
        assert log.positions_with_ids(id_hashes([0, 74_999, 75_000, 99_999])) == [150, 199]
    with Log(folder) as log:
        assert log.positions_with_ids(id_hashes([0, 74_999, 75_000, 99_999])) == [150, 199]
        log.verify()
