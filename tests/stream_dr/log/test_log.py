"""The log gives back what was appended, in order, and remembers keys, schema changes and rows."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dr import errors
from stream_dr.failpoints import failpoints_armed
from stream_dr.log.event import EventDraft, xxh64_digest
from stream_dr.log.log import Log
from tests.support.logs import bodies, draft, drafts, filled


def test_an_empty_log(folder):
    with Log(folder) as log:
        assert (log.last, log.first, log.rows_appended) == (-1, 0, 0)
        assert log.read(-1) == []
        assert log.find_key("k") is None
        assert log.schema_changes() == []
        assert log.append([]) == []
        assert log.verify().events == 0


def test_what_is_appended_is_read_in_order(folder):
    with filled(folder) as log:
        events = log.read(-1, limit=1000)
        assert [e.position for e in events] == list(range(50))
        assert [e.body for e in events] == [d.body for d in drafts(0, 50)]
        assert (log.last, log.rows_appended) == (49, 150)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(-1, 60), st.none() | st.integers(-1, 60), st.integers(1, 60), st.integers(1, 60_000))
def test_a_read_is_a_prefix_of_what_was_asked_for(shared, after, until, limit, max_bytes):
    events = shared.read(after, until, limit, max_bytes)
    end = min(49 if until is None else until, 49)
    wanted = list(range(after + 1, end + 1))[:limit]
    got = [e.position for e in events]
    assert got == wanted[: len(got)]
    enough = sum(len(e.body) for e in events) >= max_bytes
    assert got == wanted or enough
    assert len(got) <= max(1, -(-max_bytes // 1000))


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with filled(tmp_path_factory.mktemp("shared") / "log") as log:
        yield log


def test_all_fields_come_back(folder):
    given = EventDraft("reference", "key", "ab" * 32, 7, b"\x00\xffbody", '{"labels": ["é"]}')
    with Log(folder) as log:
        log.append([given])
        (event,) = log.read(-1)
        assert tuple(event)[1:7] == tuple(given)[:6]
        assert event.checksum == xxh64_digest(given.body)
        log.verify()


def test_it_goes_on_after_being_opened_again(folder):
    filled(folder, 23 * 5).close()
    with Log(folder, max_file_bytes=10_000) as log:
        assert (log.last, log.rows_appended) == (114, 345)
        assert log.append(drafts(115, 2)) == [115, 116]
        assert [e.position for e in log.read(90, limit=100)] == list(range(91, 117))
        log.verify()


def test_keys_are_found_before_and_after_opening_again(folder):
    with filled(folder) as log:
        assert log.find_key("k7") == (7, xxh64_digest(b"\x07" * 1000), 3)
        assert log.find_key("nobody") is None
    with Log(folder) as log:
        assert log.find_key("k49").position == 49


def test_only_the_last_keys_are_remembered(folder):
    with filled(folder, max_keys=10) as log:
        log.append(drafts(50, 1))
    with Log(folder, max_keys=10) as log:
        assert log.find_key("k40") is None
        assert [log.find_key(f"k{p}").position for p in range(41, 51)] == list(range(41, 51))


def test_a_key_forgotten_may_be_used_again(folder):
    with filled(folder, max_keys=10):
        pass
    with Log(folder, max_keys=10) as log:
        log.append(drafts(3, 1))
        assert log.find_key("k3").position == 50


def test_schema_changes_outlive_their_events(folder):
    with filled(folder) as log:
        log.append([draft("rows", b"x", 1, schema='{"n": 1}')])
        for start in range(51, 91, 5):
            log.append(drafts(start, 5))
        log.append([draft("rows", b"y", 1, schema='{"n": 2}')])
        assert log.drop_events_before(log.last) > 0
        assert log.first > 50
        assert log.schema_changes() == ['{"n": 1}', '{"n": 2}']
    with Log(folder) as log:
        assert log.schema_changes() == ['{"n": 1}', '{"n": 2}']


def test_what_was_dropped_is_said_and_the_rest_stays(folder):
    with filled(folder) as log:
        assert len(bodies(folder)) == 5
        assert log.drop_events_before(0) == 0
        assert log.drop_events_before(19) == 19
        assert (log.first, log.last, log.rows_appended) == (19, 49, 150)
        assert [e.position for e in log.read(18, limit=1000)] == list(range(19, 50))
        with pytest.raises(errors.HistoryGone, match=r"0 … 18 were dropped; the log begins at 19"):
            log.read(-1)
        assert [int(path.stem) for path in bodies(folder)] == [10, 20, 30, 40]
        assert log.drop_events_before(10**9) == 30
        assert (log.first, log.last, log.rows_appended) == (49, 49, 150)
        assert log.find_key("k3").position == 3
        log.verify()
    with Log(folder) as log:
        assert (log.first, log.last, log.rows_appended) == (49, 49, 150)
        assert log.find_key("k3").position == 3
        assert log.append(drafts(50, 1)) == [50]
        assert log.rows_appended == 153


def test_what_begins_later_is_read_no_more_although_it_is_still_there(folder):
    with filled(folder) as log:
        assert log.hide_events_before(30) == 30
        assert (log.first, log.read(29, limit=1)[0].position) == (30, 30)
        assert [e.position for e in log.read_events_of_kind("rows", 40)] == list(range(30, 40))
        with pytest.raises(errors.HistoryGone):
            log.read(28)
        assert log.hide_events_before(10) == 30
        with pytest.raises(errors.InsufficientStorage), failpoints_armed("log.before_commit=enospc"):
            log.append(drafts(50, 1))
        assert log.append(drafts(50, 1)) == [50]
        assert log.first == 30


def test_unlearn_events_are_found_and_count_no_rows(folder):
    with filled(folder) as log:
        log.append([draft("unlearn", b'{"positions": [3]}', 99)])
        log.append(drafts(51, 1))
        assert [e.position for e in log.read_events_of_kind("unlearn", 51)] == [50]
        assert log.read_events_of_kind("unlearn", 50) == []
        assert log.rows_appended == 153
    with Log(folder) as log:
        assert log.rows_appended == 153


def test_holding_is_where_the_last_rows_begin(folder):
    with filled(folder) as log:
        assert [log.position_before_newest(rows) for rows in (0, 1, 30, 31, 60, 149, 151, 10**9)] == [
            50,
            49,
            40,
            39,
            30,
            0,
            0,
            0,
        ]
        log.rewrite(45, b"", 0)
        log.drop_events_before(20)
        assert [log.position_before_newest(rows) for rows in (30, 10**9)] == [40, 20]
