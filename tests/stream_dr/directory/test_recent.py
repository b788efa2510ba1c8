"""What was just appended is held, bounded, and learned from without being parsed again."""

from pathlib import Path

import pytest

from stream_dr.directory.draft import RecentDrafts
from stream_dr.models.snapshot import state_sha256
from stream_dr.running.running import Running
from tests.support.batches import dense, draft, opened, put
from tests.support.waiting import wait_until


def test_given_out_in_order_without_gaps() -> None:
    recent, drafts = RecentDrafts(1 << 20), [draft(dense(i)) for i in range(6)]
    for position in (2, 3, 4, 6):
        recent.put_if_room(position, drafts[position - 2])
    assert recent.consecutive_drafts_after(0, 10) == []
    assert [p for p, _ in recent.consecutive_drafts_after(1, 10)] == [2, 3, 4]
    assert [p for p, _ in recent.consecutive_drafts_after(1, 2)] == [2, 3]
    assert recent.consecutive_drafts_after(2, 1)[0][1] is drafts[1]
    recent.remove_up_to(3)
    assert recent.consecutive_drafts_after(1, 10) == []
    assert [p for p, _ in recent.consecutive_drafts_after(5, 10)] == [6]
    assert (
        recent.first_position_after(3, 99),
        recent.first_position_after(4, 99),
        recent.first_position_after(6, 99),
    ) == (4, 6, 99)


def test_the_oldest_that_fit_are_held() -> None:
    one = draft(dense(0))
    recent = RecentDrafts(3 * len(one.body))
    for position in range(10):
        recent.put_if_room(position, one)
    assert [p for p, _ in recent.consecutive_drafts_after(-1, 10)] == [0, 1, 2]
    recent.remove_up_to(0)
    recent.put_if_room(10, one._replace(body=one.body * 9))
    recent.put_if_room(11, one)
    assert recent.first_position_after(2, 99) == 11


def test_a_model_that_falls_behind_reads_only_the_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path, pca=("ccipca", {})) as directory:
        run = Running(directory)
        directory.cache_appended_drafts(3 * len(draft(dense(0)).body))
        put(directory, *(dense(i) for i in range(8)))  # 0 … 2 are held
        directory.recent.remove_up_to(1)
        put(directory, *(dense(i) for i in range(8, 10)))  # 2, 8, 9 are held
        read: list[tuple[int, int]] = []
        original = directory.log.read
        monkeypatch.setattr(
            directory.log,
            "read",
            lambda after, until, *more: read.append((after, until)) or original(after, until, *more),
        )
        run.start()
        run.stop()
        assert directory.model("pca").position == 9
        assert [asked for asked in read if asked[0] < asked[1]] == [(-1, 1), (2, 7)]


def test_the_states_are_the_same_without_it(tmp_path: Path) -> None:
    digests = set()
    for name in ("with", "without"):
        with opened(tmp_path / name, pca=("ccipca", {}), lda=("lda", {})) as directory:
            run = Running(directory)
            if name == "without":
                directory.cache_appended_drafts(0)
            run.start()
            for i in range(20):
                run.submit(draft(dense(i, names=tuple("abcd"))))
            run.stop()
            digests.add(tuple(state_sha256(m.accumulator.freeze()) for m in directory.models.values()))
    assert len(digests) == 1


def test_nothing_is_held_once_it_is_learned_or_for_no_model(tmp_path: Path) -> None:
    for model in ({}, {"m": ("class_means", {})}):
        with opened(tmp_path / str(len(model)), **model) as directory:
            run = Running(directory)
            run.start()
            run.submit(draft(dense(0))).result(30)
            wait_until(lambda: directory.recent.first_position_after(-1, 99) == 99, 30)
            assert directory.recent.first_position_after(-1, 99) == 99
            run.stop()
