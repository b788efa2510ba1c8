"""Replay: one pass through any number of models; passes, order, resumption and damage."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from stream_dr import errors, failpoints
from stream_dr.batch.arrow import arrow_from_block
from stream_dr.batch.block import Block
from stream_dr.directory.directory import Directory
from stream_dr.estimators import ESTIMATORS
from stream_dr.log.log import Log
from stream_dr.models.snapshot import state_sha256
from stream_dr.running.driver import RunSettings
from stream_dr.running.replay import Progress, ReplayReport, ReplaySettings, replay
from stream_dr.shards import dataset as shard_reading
from stream_dr.shards.dataset import open_dataset
from stream_dr.shards.file import file_sha256
from tests.support.batches import SMALL, dense, opened, put, shards

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "lda": ("lda", {}),
    "pca": ("ccipca", {}),
    "cm": ("class_means", {}),
    "iskm": ("iskm", {}),
}


def run(path: Path, folder: Path, watch: Callable[[Progress], None] | None = None, **settings: Any) -> ReplayReport:
    """`stream-dr replay`, without the command."""
    with Directory(path, limits=SMALL) as directory:
        for name, (key, params) in MODELS.items():
            directory.add_model(name, key, params)
        return replay(directory, open_dataset(folder), ReplaySettings(**settings), watch)


def shard_of(folder: Path, *blocks: Block) -> Path:
    """A shard of one batch each, without a manifest."""
    folder.mkdir(exist_ok=True)
    for number, block in enumerate(blocks):
        batch = arrow_from_block(block)
        with pa.ipc.new_file(folder / f"{number}.arrow", batch.schema) as writer:
            writer.write_batch(batch)
    return folder


def states(path: Path) -> dict[str, tuple[int, int, str]]:
    """Position, rows and digest of every model's newest snapshot."""
    with Directory(path, writable=False) as directory:
        return {n: (m.position, m.rows, state_sha256(m.accumulator.freeze())) for n, m in directory.models.items()}


def test_states_are_those_of_the_estimators_alone(tmp_path: Path) -> None:
    report = run(tmp_path / "d", shards(tmp_path / "s"))
    assert (report.rows, report.events, report.caught_up) == (240, 12, 0)
    for name, (key, _) in MODELS.items():
        alone = ESTIMATORS[key]()
        for seed in range(12):
            block = dense(seed)
            alone.partial_fit(block.X, block.y) if alone.target_kinds else alone.partial_fit(block.X)
        assert states(tmp_path / "d")[name] == (11, 240, state_sha256(alone.state_))


def test_ctrl_c_leaves_no_event_half_applied(tmp_path: Path) -> None:
    """A single model: signals are raised in the main thread, whatever it is at."""
    folder = shards(tmp_path / "s")

    def one(path: Path, interrupted_at: int = -1) -> None:
        with Directory(path, limits=SMALL) as directory:
            model, _ = directory.add_model("lda", "lda", {})
            accumulator = model.accumulator
            add, rows = accumulator.add, interrupted_at

            def hit(block: Any) -> None:
                add(block)
                if accumulator.rows == rows:
                    os.kill(os.getpid(), signal.SIGINT)

            accumulator.add = hit
            replay(directory, open_dataset(folder), ReplaySettings())

    one(tmp_path / "whole")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            one(tmp_path / "d", interrupted_at=100)
    finally:
        signal.signal(signal.SIGINT, before)
    position, rows, _ = states(tmp_path / "d")["lda"]
    assert rows == 20 * (position + 1) > 0
    one(tmp_path / "d")
    assert states(tmp_path / "d") == states(tmp_path / "whole")


def test_replaying_again_appends_nothing(tmp_path: Path) -> None:
    folder = shards(tmp_path / "s")
    run(tmp_path / "d", folder)
    before = states(tmp_path / "d")
    assert run(tmp_path / "d", folder)[:3] == (0, 0, 0)
    assert states(tmp_path / "d") == before


def test_passes(tmp_path: Path) -> None:
    folder = shards(tmp_path / "s")
    assert run(tmp_path / "a", folder, loops=3).rows == 720
    for _ in range(2):
        run(tmp_path / "b", folder)
    for rows in (480, 720):
        assert run(tmp_path / "b", folder, again=True).rows == 240
        assert states(tmp_path / "b")["cm"][1] == rows
    assert states(tmp_path / "a") == states(tmp_path / "b")


def test_shuffled_shards_come_in_another_order_the_same_each_time(tmp_path: Path) -> None:
    folder = shards(tmp_path / "s")
    run(tmp_path / "a", folder, shuffle=3)
    run(tmp_path / "b", folder, shuffle=3)
    run(tmp_path / "c", folder, shuffle=4)
    assert states(tmp_path / "a") == states(tmp_path / "b")
    assert states(tmp_path / "a")["pca"] != states(tmp_path / "c")["pca"]


class Stop(BaseException):
    """Ends a replay where a watcher says."""


@pytest.mark.parametrize(("groups", "events"), [(1, 4), (2, 12), (3, 28)])
@pytest.mark.parametrize("error", [Stop, KeyboardInterrupt])
def test_an_interrupted_replay_goes_on_where_it_was(
    groups: int, events: int, error: type[BaseException], tmp_path: Path
) -> None:
    """Groups double in size, from 4 events, and the log ends within a shard."""
    folder, calls = shards(tmp_path / "s", blocks=40, batches_per_shard=5), 0

    def watch(progress: Progress) -> None:
        nonlocal calls
        calls += 1
        if calls == groups:
            raise error

    with pytest.raises(error):
        run(tmp_path / "a", folder, watch)
    assert states(tmp_path / "a")["cm"][1] == 20 * events
    report = run(tmp_path / "a", folder)
    assert report.rows + report.caught_up == 800 - 20 * events
    run(tmp_path / "b", folder)
    assert states(tmp_path / "a") == states(tmp_path / "b")


def test_how_often_it_is_snapshotted_changes_no_bit(tmp_path: Path) -> None:
    folder = shards(tmp_path / "s")
    run(tmp_path / "a", folder)
    run(tmp_path / "b", folder, run=RunSettings(snapshot_rows=1, snapshot_seconds=0.0))
    assert states(tmp_path / "a") == states(tmp_path / "b")


def test_a_begun_pass_is_completed_before_the_next(tmp_path: Path) -> None:
    folder = shards(tmp_path / "s")
    run(tmp_path / "a", folder)

    def stop(progress: Progress) -> None:
        raise Stop

    with pytest.raises(Stop):
        run(tmp_path / "a", folder, stop, again=True)
    assert run(tmp_path / "a", folder, again=True).passes == 2
    run(tmp_path / "b", folder, loops=2)
    assert states(tmp_path / "a") == states(tmp_path / "b")


def test_a_model_added_later_reads_the_log(tmp_path: Path) -> None:
    folder = shards(tmp_path / "s")
    run(tmp_path / "a", folder)
    with Directory(tmp_path / "a", limits=SMALL) as directory:
        directory.add_model("late", "pca", {})
        report = replay(directory, open_dataset(folder), ReplaySettings())
        assert (report.rows, report.caught_up) == (0, 240)
        assert directory.model("late").rows == 240


def test_batches_posted_before_and_after(tmp_path: Path) -> None:
    folder = shards(tmp_path / "s")
    with opened(tmp_path / "d", cm=("class_means", {})) as directory:
        put(directory, dense(77))
        replay(directory, open_dataset(folder), ReplaySettings())
        put(directory, dense(78))
        assert replay(directory, open_dataset(folder), ReplaySettings()).caught_up == 20
        assert directory.model("cm").rows == 280


def test_a_replay_given_again_learns_nothing_twice_however_few_keys_are_kept(tmp_path: Path) -> None:
    folder = shards(tmp_path / "s", blocks=40)
    with opened(tmp_path / "d", cm=("class_means", {})) as directory:
        directory.log.close()
        directory.log = Log(tmp_path / "d" / "log", max_keys=5)
        for _ in range(3):
            replay(directory, open_dataset(folder), ReplaySettings())
            directory.log.close()
            directory.log = Log(tmp_path / "d" / "log", max_keys=5)
        assert directory.model("cm").rows == 800


def test_a_damaged_shard_is_named_or_skipped(tmp_path: Path) -> None:
    folder = shards(tmp_path / "s")
    victim = sorted(folder.glob("*.arrow"))[2]
    whole = bytearray(victim.read_bytes())
    whole[len(whole) // 2] ^= 1
    victim.write_bytes(whole)
    with pytest.raises(errors.DamagedShard, match=victim.name):
        run(tmp_path / "a", folder)
    report = run(tmp_path / "a", folder, skip_damaged=True)
    assert len(report.skipped) == 1
    assert states(tmp_path / "a")["cm"][1] == 200
    for rows in (400, 600):
        assert run(tmp_path / "a", folder, again=True, skip_damaged=True).rows == 200
        assert states(tmp_path / "a")["cm"][1] == rows


def test_a_batch_that_is_refused_ends_it_with_what_came_before_learned(tmp_path: Path) -> None:
    folder = shards(tmp_path / "s", blocks=4)
    with opened(tmp_path / "d", cm=("class_means", {})) as directory:
        put(directory, dense(0, features=7))
        with pytest.raises(errors.WidthMismatch):
            replay(directory, open_dataset(folder), ReplaySettings())
        assert directory.model("cm").rows == 20


@pytest.mark.parametrize("refused", [2, 3, 4, 6])
def test_nothing_after_a_refused_batch_is_appended(tmp_path: Path, refused: int) -> None:
    """However often it is tried, and wherever in its group it is. Once the shard is mended it ends as if it never was.

    The first group has four batches.
    """
    blocks = [dense(seed) for seed in range(8)]
    folder = shard_of(tmp_path / "s", *blocks[:refused], dense(2, features=5), *blocks[refused + 1 :])
    for _ in range(3):
        with pytest.raises(errors.WidthMismatch, match=rf"{refused}\.arrow, batch 0: batch has 5 features"):
            run(tmp_path / "d", folder)
        assert {rows for _, rows, _ in states(tmp_path / "d").values()} == {20 * refused}
    shard_of(folder, *blocks)
    run(tmp_path / "d", folder)
    run(tmp_path / "straight", folder)
    assert states(tmp_path / "d") == states(tmp_path / "straight")


@pytest.mark.parametrize("last", ["repeated", "refused"])
def test_a_full_disk_ends_it_whatever_ends_the_group(tmp_path: Path, last: str) -> None:
    """The last batch of the second group is in the log already, or would be refused. The first group has four batches."""
    blocks = [dense(seed) for seed in range(6)]
    folder = shard_of(tmp_path / "s", *blocks, blocks[0] if last == "repeated" else dense(3, features=7))
    failpoints.arm_failpoints("log.before_commit=enospc@2")
    try:
        with pytest.raises(errors.InsufficientStorage):
            run(tmp_path / "d", folder)
    finally:
        failpoints.arm_failpoints("")
    assert {rows for _, rows, _ in states(tmp_path / "d").values()} == {80}
    if last == "repeated":
        assert run(tmp_path / "d", folder).rows == 40


@pytest.mark.parametrize("skip", [False, True])
def test_a_first_pass_asked_for_as_one_more_is_not_made_twice(tmp_path: Path, skip: bool) -> None:
    folder = shards(tmp_path / "s")

    def stop(progress: Progress) -> None:
        if progress.rows == progress.total_rows:
            raise Stop

    with pytest.raises(Stop):
        run(tmp_path / "d", folder, stop, again=True, skip_damaged=skip)
    report = run(tmp_path / "d", folder, again=True, skip_damaged=skip)
    assert (report.rows, report.passes, states(tmp_path / "d")["cm"][1]) == (0, 1, 240)
    assert run(tmp_path / "d", folder, again=True, skip_damaged=skip).rows == 240


def test_a_failed_model_is_told_at_the_end(tmp_path: Path) -> None:
    folder = shards(tmp_path / "s")
    with opened(tmp_path / "d", cm=("class_means", {}), lda=("lda", {})) as directory:
        directory.model("lda").accumulator.add = lambda block: 1 / 0
        with pytest.raises(errors.ModelFailed, match="lda"):
            replay(directory, open_dataset(folder), ReplaySettings())
    with Directory(tmp_path / "d", limits=SMALL) as directory:
        assert directory.model("cm").rows == 240
        assert replay(directory, open_dataset(folder), ReplaySettings()).rows == 0


def test_sparse_rows_and_label_sets(tmp_path: Path) -> None:
    folder = shards(tmp_path / "s", sparse_rows=True)
    with opened(tmp_path / "d", opls=("opls", {}), pca=("ccipca", {})) as directory:
        seen: list[Progress] = []
        report = replay(directory, open_dataset(folder), ReplaySettings(), seen.append)
        assert report.rows == directory.model("opls").rows == 240
        assert (seen[-1].rows, seen[-1].total_rows, seen[-1].shards, seen[-1].total_shards) == (240, 240, 6, 6)
        assert directory.schema.stated == open_dataset(folder).n_features


def test_passes_of_a_replay_that_was_killed_before_its_first_batch_are_remembered(tmp_path: Path) -> None:
    folder = shards(tmp_path / "s")

    def stop(*_: Any, **__: Any) -> None:
        raise Stop

    with Directory(tmp_path / "a", limits=SMALL) as directory:
        directory.add_model("cm", "class_means", {})
        directory.append = stop  # type: ignore[method-assign,assignment]
        with pytest.raises(Stop):
            replay(directory, open_dataset(folder), ReplaySettings(loops=2))
    assert run(tmp_path / "a", folder).passes == 2
    assert run(tmp_path / "a", folder).passes == 1


def test_shards_without_a_manifest_are_hashed_one_ahead_of_what_is_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shards(tmp_path / "s", blocks=80)
    (folder / "manifest.json").unlink()
    hashed: list[str] = []
    monkeypatch.setattr(
        shard_reading, "file_sha256", lambda path, *rest: hashed.append(path.name) or file_sha256(path, *rest)
    )

    def stop(progress: Progress) -> None:
        raise Stop

    with pytest.raises(Stop):
        run(tmp_path / "a", folder, stop)
    # Groups of 4, 8, 16 and 32 batches are read before the first is learned, two batches of a shard.
    assert 0 < len(set(hashed)) <= (4 + 8 + 16 + 32) // 2 + 1 < 40
    run(tmp_path / "a", folder)
    run(tmp_path / "b", folder)
    assert states(tmp_path / "a") == states(tmp_path / "b")


def test_a_shard_given_twice_is_learned_once(tmp_path: Path) -> None:
    folder = shards(tmp_path / "s")
    with opened(tmp_path / "d", cm=("class_means", {})) as directory:
        report = replay(directory, open_dataset([folder, folder]), ReplaySettings())
        assert (report.rows, report.events, directory.model("cm").rows) == (240, 12, 240)
