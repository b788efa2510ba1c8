"""Keys: the last of them by count, references for ever, a damaged one told and never taken for new."""

import random
import re
import shutil
import sqlite3
from contextlib import closing

import pytest

from stream_dr.errors import DamagedFile, StreamDRError
from stream_dr.log.log import Log
from tests.support.logs import draft


def keyed(*keys):
    return [draft("rows", b"x", 1, key=key) for key in keys]


def found(log, keys):
    return [key for key in keys if log.find_key(key) is not None]


@pytest.mark.parametrize("group", [1, 5, 30])
def test_the_last_keys_by_count_remain_and_references_for_ever(folder, group):
    keys = [f"reference:abc:{p}:1" if p % 5 == 0 else f"k{p}" for p in range(60)]
    plain = [key for key in keys if key.startswith("k")]
    with Log(folder, max_keys=7) as log:
        for at in range(0, 60, group):
            log.append(keyed(*keys[at : at + group]))
        for _ in range(2):
            assert found(log, keys) == [key for key in keys if key not in plain[:-7]]
            log.drop_events_before(55)
    with Log(folder, max_keys=7) as log:
        assert found(log, keys) == [key for key in keys if key not in plain[:-7]]
        assert log.find_key("reference:abc:0:1").position == 0
        log.append(keyed(plain[0]))
        assert log.find_key(plain[0]).position == 60
        assert log.find_key(plain[-7]) is None


def test_a_key_keeps_its_first_event(folder):
    with Log(folder) as log:
        log.append([draft("rows", b"first", 1, key="k"), draft("rows", b"second", 2, key="k")])
        log.append([draft("rows", b"third", 3, key="k"), draft("rows", b"", 4, key="")])
        assert (log.find_key("k").position, log.find_key("k").rows) == (0, 1)
        assert log.find_key("").position == 3


@pytest.mark.every_run
def test_a_damaged_key_is_told_and_never_taken_for_new(folder):
    """Without `verify`: every flipped byte of where a key is stored."""
    keys = [f"key {random.Random(p).random()}" for p in range(300)]
    with Log(folder) as log:
        log.append(keyed(*keys))
    path = folder / "index.sqlite"
    whole = path.read_bytes()
    copy = folder.with_name("copy")
    chance = random.Random(3)
    told = 0
    for key in (sorted(keys)[0], sorted(keys)[-1], *keys[:6]):
        places = [match.start() for match in re.finditer(re.escape(key.encode()), whole)]
        assert len(places) == 3  # of the event, of the key, and of the order in which keys are forgotten
        for place in places:
            for byte in range(place, place + len(key)):
                shutil.copytree(folder, copy)
                bad = bytearray(whole)
                bad[byte] ^= 1 << chance.randrange(8)
                (copy / path.name).write_bytes(bad)
                try:
                    with Log(copy, writable=False) as log:
                        known = log.find_key(key)
                except StreamDRError:
                    told += 1
                else:
                    assert known, (key, place, byte)
                    assert known.position == keys.index(key)
                shutil.rmtree(copy)
    assert told > 8 * 15


@pytest.mark.parametrize("key", ["k20", "k30"])  # the oldest remembered, and one between
def test_a_key_that_is_missing_is_told_by_verify_also_when_its_event_was_dropped(folder, key):
    with Log(folder, max_keys=20) as log:
        for p in range(40):
            log.append([draft("reference", b"x", 1, key=f"k{p}")] + [draft("reference", b"x", 1, key="k39")] * (p % 3))
        log.drop_events_before(log.last - 3)
        log.verify()
    with closing(sqlite3.connect(folder / "index.sqlite")) as index, index:
        assert index.execute("DELETE FROM keys WHERE key = ?", (key,)).rowcount == 1
    with Log(folder, max_keys=20) as log, pytest.raises(DamagedFile, match="keys are missing"):
        log.verify()
