"""What is forgotten and dropped is never what a model still comes to need, whoever comes when."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from stream_dr import errors
from stream_dr.directory import directory as directory_module
from stream_dr.directory.directory import Directory
from stream_dr.directory.draft import unlearn_draft
from stream_dr.models.entry import ModelFailure
from stream_dr.models.snapshot import snapshot_folder, snapshots_newest_first, write_snapshot_if_needed
from stream_dr.running.advance import backfill
from stream_dr.running.running import Running, RunSettings
from tests.support.batches import dense, draft, opened, put

WAIT = 30


def fill(directory: Directory, seeds: range) -> None:
    """A batch a seed, each appended alone."""
    for seed in seeds:
        put(directory, dense(seed))


def unlearned(directory: Directory, *positions: int) -> int:
    directory.append([unlearn_draft(directory.history.parse_named_removal(positions, ()))])
    return directory.position


def up(directory: Directory, *names: str, until: int | None = None) -> None:
    backfill(directory, [directory.model(n) for n in names], directory.position if until is None else until)


def kept(directory: Directory, *names: str) -> None:
    """Snapshot models where they are."""
    for name in names:
        write_snapshot_if_needed(directory.model(name), directory.model(name).freeze(), directory.path)


def rows_of(directory: Directory, name: str) -> int:
    model = directory.model(name)
    assert model.failure is None, model.failure
    return model.rows


def test_a_model_made_while_rows_are_forgotten_does_not_keep_them(tmp_path: Path, monkeypatch: Any) -> None:
    with opened(tmp_path, old=("class_means", {})) as directory:
        fill(directory, range(10))
        unlearned(directory, 0, 1, 2, 3)
        for seed in (20, 21):
            put(directory, dense(seed))
            up(directory, "old")
            kept(directory, "old")
        listed = directory.log.read_events_of_kind

        def made_in_between(kind: str, before: int) -> Any:
            found = listed(kind, before)
            if "late" not in directory.models:
                directory.add_model("late", "class_means", {})
                up(directory, "late", until=9)
            return found

        monkeypatch.setattr(directory.log, "read_events_of_kind", made_in_between)
        assert directory.retention.erase_unlearned_rows() == 0
        up(directory, "late")
        assert rows_of(directory, "late") == rows_of(directory, "old") == 160
        for _ in range(2):
            kept(directory, "late")
            put(directory, dense(30))
            up(directory, "late", "old")
        kept(directory, "late")
        assert directory.retention.erase_unlearned_rows() == 4


@pytest.mark.parametrize("key", ["class_means", "ccipca"])
def test_nothing_that_a_rebuild_for_a_pending_unlearning_reads_is_dropped(tmp_path: Path, key: str) -> None:
    with opened(tmp_path, a=(key, {}), b=(key, {})) as directory:
        fill(directory, range(20))
        up(directory, "a", "b")
        kept(directory, "a", "b")
        taken = unlearned(directory, 7)
        fill(directory, range(40, 60))
        up(directory, "a", "b")
        kept(directory, "a")
        assert directory.retention.oldest_snapshot_position() == 19 < taken
        assert directory.retention.first_needed_position() == 0
        directory.retention.drop_unneeded_events(20)
        assert directory.log.first == 0
    with Directory(tmp_path, limits=directory.limits) as again:
        assert again.model("b").position == 19
        up(again, "a", "b")
        assert rows_of(again, "a") == rows_of(again, "b") == 39 * 20
        for name in ("a", "b"):
            kept(again, name)
            put(again, dense(70))
            up(again, "a", "b")
            kept(again, "a", "b")
        again.retention.drop_unneeded_events(20)
        assert again.log.first > 19


def test_an_unlearning_of_what_was_dropped_meanwhile_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path, m=("class_means", {})) as directory:
        fill(directory, range(30))
        late = unlearn_draft(directory.history.parse_named_removal((2,), ()))
        up(directory, "m")
        kept(directory, "m")
        put(directory, dense(31))
        up(directory, "m")
        kept(directory, "m")
        assert directory.retention.drop_unneeded_events(20) > 0
        (answer,) = directory.append([late])
        assert isinstance(answer, errors.HistoryGone)
        put(directory, dense(32))
        up(directory, "m")
        assert directory.model("m").failure is None


def test_unlearn_events_are_read_while_others_are_dropped(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        fill(directory, range(200))
        last = unlearned(directory, 199)
        with Directory(tmp_path, writable=False) as reader, ThreadPoolExecutor(1) as pool:
            dropping = pool.submit(directory.log.drop_events_before, 190)
            while not dropping.done():
                assert [event.position for event in reader.log.read_events_of_kind("unlearn", last + 1)] == [last]
                assert [event.position for event in directory.log.read_events_of_kind("unlearn", last + 1)] == [last]
            assert dropping.result() == 190


def test_a_model_that_has_failed_for_good_holds_nothing_back(tmp_path: Path) -> None:
    with opened(tmp_path, good=("class_means", {}), bad=("class_means", {})) as directory:
        fill(directory, range(30))
        up(directory, "good")
        kept(directory, "good")
        assert directory.retention.first_needed_position() == 0
        directory.model("bad").failure = ModelFailure(3, "invalid_rows", "for the test")
        assert directory.retention.first_needed_position() == 30
        directory.model("bad").failure = ModelFailure(3, "source_missing", "for the test")
        assert directory.retention.first_needed_position() == 0


def test_a_damaged_snapshot_is_not_one_of_those_that_are_kept(tmp_path: Path) -> None:
    with opened(tmp_path, m=("class_means", {})) as directory:
        for i in range(3):
            put(directory, dense(i))
            up(directory, "m")
            kept(directory, "m")
        folder = snapshot_folder(directory.path, "m", directory.model("m").id)
        newest = snapshots_newest_first(folder)[0]
        newest.write_bytes(newest.read_bytes()[:-9])
    with Directory(tmp_path, limits=directory.limits) as again:
        assert again.model("m").position == 1
        up(again, "m")
        put(again, dense(5))
        up(again, "m")
        kept(again, "m")
        assert [int(path.stem) for path in snapshots_newest_first(folder)] == [3, 1]
        assert newest.with_suffix(".damaged").exists()
        assert again.retention.oldest_snapshot_position() == 1


def test_a_model_without_rows_is_snapshotted_as_it_goes(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        run = Running(directory, RunSettings(snapshot_rows=40, snapshot_seconds=None))
        run.start()
        model, _ = run.add_model("lda", "lda", {})
        for i in range(10):
            run.submit(draft(dense(i)._replace(y=None))).result(WAIT)
            assert run.wait_until_all_include(i, WAIT)
        run.stop()
        assert (model.rows, model.failure) == (0, None)
    assert len(snapshots_newest_first(snapshot_folder(tmp_path, "lda", model.id))) == 2
    with Directory(tmp_path, limits=directory.limits) as again:
        assert again.model("lda").position == 9
        assert again.model("lda").rows == 0


def test_a_reader_opens_what_is_shortened_meanwhile(tmp_path: Path, monkeypatch: Any) -> None:
    with opened(tmp_path, m=("class_means", {})) as directory:
        fill(directory, range(30))
        looked = directory_module.ModelTable.entries

        def then_dropped(table: Any) -> Any:
            found = looked(table)
            monkeypatch.undo()
            for _ in range(2):
                put(directory, dense(40))
                up(directory, "m")
                kept(directory, "m")
            assert directory.retention.drop_unneeded_events(20) > 0
            return found

        monkeypatch.setattr(directory_module.ModelTable, "entries", then_dropped)
        with Directory(tmp_path, writable=False) as reader:
            assert (reader.model("m").failure, reader.log.first) == (None, directory.log.first)


def test_what_a_model_that_is_tried_again_would_need_is_refused_too(tmp_path: Path) -> None:
    with opened(tmp_path, c=("ccipca", {})) as directory:
        for seeds in (range(20), range(20, 25)):
            fill(directory, seeds)
            up(directory, "c")
            kept(directory, "c")
        assert directory.retention.drop_unneeded_events(20) > 0
        directory.model("c").mark_failed_by_error(25, errors.SourceMissing("for the test"))
        with pytest.raises(errors.HistoryGone, match="rebuilt"):
            directory.history.parse_named_removal([24], ())
