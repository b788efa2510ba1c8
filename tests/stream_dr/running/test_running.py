"""Running: durable before acknowledged, learned in order, published soon, nothing lost at a stop; refusals under load."""

import gc
import shutil
import sqlite3
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from stream_dr import errors
from stream_dr.batch.block import Block
from stream_dr.directory.directory import Directory
from stream_dr.directory.draft import Receipt
from stream_dr.failpoints import failpoints_armed
from stream_dr.models import snapshot_file
from stream_dr.models.entry import PublishPolicy
from stream_dr.models.limits import Limits
from stream_dr.models.snapshot import state_sha256, write_snapshot_if_needed
from stream_dr.running import driver as driver_module
from stream_dr.running import ingest
from stream_dr.running.advance import backfill
from stream_dr.running.query import transform
from stream_dr.running.running import Running, RunSettings
from tests.support.batches import SMALL, body, dense, draft, opened, put
from tests.support.waiting import assert_stays, wait_until

WAIT = 20.0
ON_DEMAND = PublishPolicy(rows=None, seconds=None, idle=False)
SELDOM = PublishPolicy(rows=10**9, seconds=None, idle=False)


@contextmanager
def running(path: Path, limits: Limits = SMALL, **settings: Any) -> Iterator[Running]:
    """A directory being kept current."""
    with Directory(path, limits=limits) as directory:
        run = Running(directory, RunSettings(**settings))
        run.start()
        try:
            yield run
        finally:
            run.stop()


def eventually(true: Callable[[], bool]) -> None:
    wait_until(true, WAIT)


def settled(run: Running, position: int) -> None:
    """Every model includes a position, or never will; some never will, and who waits is told so."""
    models = run.directory.models
    eventually(
        lambda: all(m.is_published_up_to(position) or m.reason_not_publishable(position) for m in models.values())
    )
    assert not run.wait_until_all_include(position, WAIT)


def test_batches_are_learned_in_order_and_nothing_is_lost_at_a_stop(tmp_path: Path) -> None:
    with running(tmp_path / "a") as run:
        run.add_model("pca", "ccipca", {})
        futures = [run.submit(draft(dense(i), f"k{i}")) for i in range(40)]
    assert [f.result(0) for f in futures] == [Receipt(i, 20) for i in range(40)]
    with opened(tmp_path / "b", pca=("ccipca", {})) as directory:
        put(directory, *(dense(i) for i in range(40)))
        backfill(directory, [directory.model("pca")], 39)
        straight = state_sha256(directory.model("pca").accumulator.freeze())
    with Directory(tmp_path / "a", writable=False) as directory:
        model = directory.model("pca")
        assert (model.position, model.rows) == (39, 800)
        assert state_sha256(model.accumulator.freeze()) == straight
        assert model.published is not None
        assert model.published.position == 39


@pytest.mark.parametrize("damage", ["swapped", "not ours", "gone", "short"])
def test_rows_that_are_not_there_any_more_fail_the_models_that_need_them_by_name(tmp_path: Path, damage: str) -> None:
    with running(tmp_path) as run:
        run.directory.cache_appended_drafts(0)  # models read what the log has
        run.add_model("early", "class_means", {})
        assert run.wait_until_all_include(run.submit(draft(dense(0))).result(WAIT).position, WAIT)
        (bodies,) = (tmp_path / "log").glob("*.bodies")
        whole = bodies.read_bytes()
        other = {"swapped": whole[:16] + bytes(16) + whole[32:], "not ours": b"a letter" * 99, "short": whole[:40]}
        bodies.unlink() if damage == "gone" else bodies.write_bytes(other[damage])
        model, _ = run.add_model("late", "class_means", {})
        eventually(lambda: model.failure is not None)
        assert (model.failure.position, model.failure.code) in [(0, "foreign_file"), (0, "damaged_file")]  # type: ignore[union-attr]
        assert bodies.name in model.failure.message  # type: ignore[union-attr]
        assert run.directory.model("early").failure is None
        bodies.write_bytes(whole)
        settled(run, run.submit(draft(dense(1))).result(WAIT).position)
        assert run.directory.model("early").rows == 40


def test_many_clients_one_order(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        run.add_model("m", "class_means", {})
        receipts: list[Receipt] = []

        def post(client: int) -> None:
            for i in range(15):
                receipts.append(run.submit(draft(dense(i), f"{client}-{i}")).result(WAIT))

        threads = [threading.Thread(target=post, args=(c,)) for c in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(r.position for r in receipts) == list(range(90))
        assert run.wait_until_all_include(89, WAIT)
        assert run.directory.model("m").rows == 1800
        assert run.figures()["events_appended"] == 90
        assert run.figures()["commits"] <= 90


def test_refusals_come_through_the_future(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        run.submit(draft(dense(0), "k")).result(WAIT)
        with pytest.raises(errors.WidthMismatch):
            run.submit(draft(dense(0, features=9))).result(WAIT)
        with pytest.raises(errors.KeyConflict):
            run.submit(draft(dense(1), "k")).result(WAIT)
        with pytest.raises(errors.WidthMismatch):
            run.check(draft(dense(0, features=9)))
        run.check(draft(dense(5)))
        assert run.submit(draft(dense(0), "k")).result(WAIT).duplicate
        assert run.directory.position == 0
        figures = run.figures()
        assert (figures["refused"], figures["duplicates"]) == (2, 1)


def test_wait_applied_means_learned_and_published(tmp_path: Path) -> None:
    with running(tmp_path, publish=SELDOM) as run:
        run.add_model("lda", "lda", {})
        run.add_model("cm", "class_means", {})
        for i in range(10):
            position = run.submit(draft(dense(i))).result(WAIT).position
            assert run.wait_until_all_include(position, WAIT)
            for model in run.directory.models.values():
                assert model.position >= position
                assert model.published is not None
                assert model.published.position >= position
        assert not run.wait_until_all_include(99, 0.05)


def test_who_gave_up_waiting_makes_no_model_hurry(tmp_path: Path) -> None:
    with running(tmp_path, publish=SELDOM) as run:
        model, _ = run.add_model("cm", "class_means", {})
        given_up, kept = run.future_until_all_include(1), run.future_until_all_include(0)
        given_up.cancel()
        run.submit(draft(dense(0))).result(WAIT)
        kept.result(WAIT)
        run.submit(draft(dense(1))).result(WAIT)
        eventually(lambda: model.position == 1)
        assert_stays(lambda: model.published is not None and model.published.position == 0, 0.2)
        assert run.future_until_all_include(1).result(WAIT) is None
        left = run.future_until_all_include(99)
    assert left.cancelled()
    assert run.future_until_all_include(99).cancelled()
    assert run.future_until_all_include(1).result(0) is None


def test_on_demand_publishes_nothing_by_itself(tmp_path: Path) -> None:
    with running(tmp_path, publish=ON_DEMAND) as run:
        model, _ = run.add_model("cm", "class_means", {})
        with pytest.raises(errors.NotFitted):
            run.publish("cm")
        run.submit(draft(dense(0))).result(WAIT)
        eventually(lambda: model.position == 0)
        assert_stays(lambda: model.published is None, 0.2)
        with pytest.raises(errors.NotFitted):
            transform(run.directory.releases.served(model), dense(1))
        assert run.publish("cm").position == 0
        run.submit(draft(dense(1))).result(WAIT)
        eventually(lambda: model.position == 1)
        solve, model.estimator.solve = model.estimator.solve, unsolvable
        with pytest.raises(errors.NotFitted, match="no answer"):
            run.publish("cm")
        model.estimator.solve = solve
        assert run.publish("cm").position == 1


def unsolvable(_: Any) -> Any:
    raise errors.NotFitted("no answer")


def test_without_asking_a_projection_follows_when_the_log_is_drained(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        model, _ = run.add_model("cm", "class_means", {})
        run.submit(draft(dense(0))).result(WAIT)
        eventually(lambda: model.published is not None and model.published.position == 0)


def test_a_model_added_later_catches_up_while_batches_arrive(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        run.add_model("first", "ccipca", {})
        for i in range(60):
            run.submit(draft(dense(i)))
        late, new = run.add_model("late", "ccipca", {})
        assert new
        assert run.add_model("late", "ccipca", {}) == (late, False)
        for i in range(60, 120):
            run.submit(draft(dense(i))).result(WAIT)
        assert run.wait_until_all_include(119, WAIT)
        first = run.directory.model("first")
        eventually(lambda: late.status == "live")
        assert first.rows == late.rows == 2400
        assert state_sha256(first.accumulator.freeze()) == state_sha256(late.accumulator.freeze())


def test_starting_at_now(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        run.submit(draft(dense(0))).result(WAIT)
        model, _ = run.add_model("now", "class_means", {}, "now")
        position = run.submit(draft(dense(1))).result(WAIT).position
        assert run.wait_until_all_include(position, WAIT)
        assert model.rows == 20


def test_a_failing_model_leaves_the_others_alone(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        bad, _ = run.add_model("bad", "class_means", {})
        good, _ = run.add_model("good", "lda", {})
        run.submit(draft(dense(0))).result(WAIT)
        assert run.wait_until_all_include(0, WAIT)
        served = bad.published
        told: list[dict[str, Any]] = []
        run.listen(lambda event: told.append(event) if event["event"] == "failed" else None)
        bad.accumulator.add = lambda block: 1 / 0
        run.submit(draft(dense(1))).result(WAIT)
        settled(run, 1)
        assert (bad.status, good.status, good.rows) == ("failed", "live", 40)
        eventually(lambda: bool(told))
        assert told == [{"event": "failed", "model": "bad", "position": 1, "code": "internal"}]
        assert bad.published is served
    with running(tmp_path) as run:
        assert run.directory.model("bad").status == "failed"
        assert run.directory.model("bad").published is not None
        run.submit(draft(dense(2))).result(WAIT)
        settled(run, 2)


def test_a_damaged_event_fails_the_models_that_need_it_until_it_is_restored(tmp_path: Path) -> None:
    def told(rows: int) -> None:
        with closing(sqlite3.connect(tmp_path / "log" / "index.sqlite", isolation_level=None)) as db:
            db.execute("UPDATE events SET rows = ? WHERE position = 5", (rows,))

    with opened(tmp_path, old=("lda", {})) as directory:
        put(directory, *(dense(i) for i in range(12)))
    told(21)
    with running(tmp_path) as run:
        old = run.directory.model("old")
        late, _ = run.add_model("late", "class_means", {})
        new, _ = run.add_model("new", "class_means", {}, "now")
        eventually(lambda: old.status == late.status == "failed")
        assert [(m.failure.position, m.failure.code) for m in (old, late) if m.failure] == [(5, "damaged_file")] * 2
        run.submit(draft(dense(12))).result(WAIT)
        settled(run, 12)
        assert (new.status, new.rows, old.rows) == ("live", 20, 100)
    told(20)
    with running(tmp_path) as run:
        assert run.wait_until_all_include(12, WAIT)
        assert [(m.status, m.rows) for m in run.directory.models.values()] == [
            ("live", 260),
            ("live", 260),
            ("live", 20),
        ]


def test_a_solver_that_raises_does_not_stop_learning(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        model, _ = run.add_model("m", "class_means", {})
        model.estimator.solve = lambda state: 1 / 0
        for i in range(3):
            run.submit(draft(dense(i))).result(WAIT)
            settled(run, i)
        assert (model.rows, model.published) == (60, None)
        with pytest.raises(errors.NotFitted, match=r"could not be solved \(ZeroDivisionError"):
            raise model.unpublished_error()
        del model.estimator.solve
        run.submit(draft(dense(3))).result(WAIT)
        assert run.wait_until_all_include(3, WAIT)
        assert model.published is not None


@pytest.mark.parametrize(
    ("place", "action"), [("before_commit", "enospc"), ("bodies_write", "enospc"), ("before_commit", "raise")]
)
def test_a_batch_that_could_not_be_appended_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, action: str
) -> None:
    """Without the garbage collector, which counts objects and not their bytes."""
    monkeypatch.setattr(ingest.log, "exception", lambda _: None)  # pytest keeps what is logged
    with running(tmp_path) as run:
        run.add_model("m", "class_means", {})
        offered = draft(dense(0, 2_000, 8))
        watched = weakref.ref(offered.block.X)  # type: ignore[union-attr]
        gc.disable()
        try:
            with failpoints_armed(f"log.{place}={action}"):
                future = run.submit(offered)
                del offered
                assert future.exception(WAIT) is not None
            eventually(lambda: watched() is None)
        finally:
            gc.enable()


def test_waiting_bodies_are_bounded(tmp_path: Path) -> None:
    with running(tmp_path, SMALL._replace(max_queue_bytes=3000)) as run:
        held = run.directory.retention.append_lock
        with held:
            with pytest.raises(errors.Overloaded) as told:
                deque((run.submit(draft(dense(i))) for i in range(50)), maxlen=0)
            assert told.value.details["retry_after"] == 1
            assert 0 < run.queued_bytes <= 6000
        eventually(lambda: run.queued_bytes == 0)
        run.submit(draft(dense(99))).result(WAIT)


def test_lag_is_bounded(tmp_path: Path) -> None:
    with running(tmp_path, SMALL._replace(max_lag=5)) as run:
        model, _ = run.add_model("m", "class_means", {})
        go = threading.Event()
        add = model.accumulator.add

        def slow(block: Any) -> None:
            go.wait(WAIT)
            add(block)

        model.accumulator.add = slow
        with pytest.raises(errors.Overloaded):
            deque((run.submit(draft(dense(i))).result(WAIT) for i in range(50)), maxlen=0)
        assert run.lag > 5
        go.set()
        eventually(lambda: run.lag == 0)
        run.submit(draft(dense(99))).result(WAIT)


def test_after_a_stop_nothing_is_taken(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        pass
    with pytest.raises(errors.ShuttingDown):
        run.submit(draft(dense(0)))
    assert run.refusal_reason() is not None


def test_a_stop_in_no_time_leaves_the_rest_for_the_next_start(tmp_path: Path) -> None:
    with Directory(tmp_path, limits=SMALL) as directory:
        run = Running(directory)
        run.start()
        model, _ = run.add_model("m", "ccipca", {})
        futures: list[Future[Receipt]] = [run.submit(draft(dense(i))) for i in range(200)]
        run.stop(0.0)
        assert all(f.result(0) for f in futures)
        assert model.last_snapshot.position == model.position
    with running(tmp_path) as run:
        assert run.wait_until_all_include(199, WAIT)
        assert run.directory.model("m").rows == 4000


def test_snapshots_by_rows(tmp_path: Path) -> None:
    with running(tmp_path, snapshot_rows=100, snapshot_seconds=None) as run:
        model, _ = run.add_model("m", "class_means", {})
        for i in range(30):
            run.submit(draft(dense(i))).result(WAIT)
        eventually(lambda: run.figures()["snapshots"] >= 2)
        assert model.last_snapshot.position > 0


def test_a_stop_snapshots_what_it_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(model: Any, *rest: Any) -> Any:
        if model.name in ("first", "last"):
            raise errors.InsufficientStorage(model.name)
        return write_snapshot_if_needed(model, *rest)

    monkeypatch.setattr(driver_module, "write_snapshot_if_needed", full)
    with Directory(tmp_path, limits=SMALL) as directory:
        run = Running(directory, RunSettings(snapshot_seconds=None))
        run.start()
        first, middle, last = (run.add_model(name, "lda", {})[0] for name in ("first", "middle", "last"))
        run.submit(draft(dense(0))).result(WAIT)
        assert run.wait_until_all_include(0, WAIT)
        with pytest.raises(errors.InsufficientStorage):
            run.stop()
        assert [m.last_snapshot.position for m in (first, middle, last)] == [-1, 0, -1]


def test_listeners_are_told(tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []
    with running(tmp_path) as run:
        run.add_model("m", "class_means", {})
        end = run.listen(told.append)
        run.submit(draft(dense(0))).result(WAIT)
        assert run.wait_until_all_include(0, WAIT)
        eventually(lambda: {"appended", "published"} <= {e["event"] for e in told})
        end()
    assert {"event": "appended", "position": 0, "rows": 20} in told


def test_jobs(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        model, _ = run.add_model("lda", "lda", {"gamma": 1.0, "scatter": "diagonal"})
        run.add_model("pca", "ccipca", {})
        for i in range(5):
            run.submit(draft(dense(i))).result(WAIT)
        assert run.wait_until_all_include(4, WAIT)
        job = run.refine("lda")
        assert job.wait(WAIT)
        assert job.describe()["state"] == "done", job.describe()
        assert job.describe()["progress"]["converged"]
        assert model.published is not None
        assert (model.published.refined_at, model.published.projection.solution) == (4, "refined")
        run.submit(draft(dense(5))).result(WAIT)
        assert run.wait_until_all_include(5, WAIT)
        assert model.published.refined_at == 4
        snapshot = run.snapshot("pca")
        assert snapshot.wait(WAIT)
        assert snapshot.state == "done"
        assert run.job(job.id) is job
        assert [j.kind for j in run.jobs] == ["refine", "snapshot"]
        with pytest.raises(errors.CannotRefine):
            run.refine("pca")
        with pytest.raises(errors.UnknownJob):
            run.job("x")
        with pytest.raises(errors.UnknownModel):
            run.snapshot("x")
    with Directory(tmp_path, writable=False) as directory:
        restored = directory.model("lda").published
        assert restored is not None
        assert (restored.refined_at, restored.projection.solution) == (4, "refined")


def test_snapshots_of_one_position_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have the same temporary file, so one waits for the other."""

    all_started = threading.Event()

    def slowly(*args: Any) -> bytes:
        all_started.wait(WAIT)
        return save(*args)

    monkeypatch.setattr(snapshot_file, "save", slowly)
    with running(tmp_path, snapshot_seconds=None) as run:
        run.add_model("lda", "lda", {})
        run.submit(draft(dense(0))).result(WAIT)
        assert run.wait_until_all_include(0, WAIT)
        jobs = [run.snapshot("lda") for _ in range(4)]
        all_started.set()
        assert all(job.wait(WAIT) for job in jobs)
        assert [(job.state, job.error) for job in jobs] == [("done", None)] * 4


def test_a_snapshot_that_cannot_be_written_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(model: Any, *rest: Any) -> Any:
        if model.name == "bad":
            raise OSError(5, "Input/output error")
        return write_snapshot_if_needed(model, *rest)

    monkeypatch.setattr(driver_module, "write_snapshot_if_needed", broken)
    with running(tmp_path, snapshot_rows=1, snapshot_seconds=None) as run:
        bad, _ = run.add_model("bad", "lda", {})
        good, _ = run.add_model("good", "pca", {})
        run.submit(draft(dense(0))).result(WAIT)
        eventually(lambda: good.last_snapshot.position == 0)
        assert bad.last_snapshot.position == -1
        job = run.snapshot("bad")
        assert job.wait(WAIT)
        assert (job.state, job.error) == ("failed", {"code": "internal", "message": "OSError"})
        monkeypatch.undo()
    assert "model bad could not be snapshotted" in caplog.text


def test_unlearning(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        run.add_model("lda", "lda", {})
        run.add_model("pca", "ccipca", {})
        for i in range(4):
            run.submit(draft(dense(i, ids=[f"{i}-{r}" for r in range(20)]))).result(WAIT)
        position = run.unlearn([1], ["2-3"], "gone").result(WAIT).position
        assert run.wait_until_all_include(position, WAIT)
        assert {m.rows for m in run.directory.models.values()} == {59}
        assert run.unlearn([1], ["2-3"], "gone").result(WAIT).duplicate


def test_a_removed_model_is_gone(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        run.add_model("m", "class_means", {})
        run.submit(draft(dense(0))).result(WAIT)
        run.remove_model("m")
        run.submit(draft(dense(1))).result(WAIT)
        assert run.wait_until_all_include(1, WAIT)
    assert list((tmp_path / "snapshots").glob("*")) == []


def test_readers_hold_what_they_took(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        model, _ = run.add_model("m", "class_means", {})
        run.submit(draft(dense(0))).result(WAIT)
        assert run.wait_until_all_include(0, WAIT)
        rows = dense(50)
        first = transform(run.directory.releases.served(model), rows)
        held = model.published
        assert held is not None
        run.submit(draft(dense(1))).result(WAIT)
        assert run.wait_until_all_include(1, WAIT)
        np.testing.assert_array_equal(held.projection.apply(rows.X), first.z)
        assert transform(run.directory.releases.served(model), rows).version > first.version


def test_what_was_published_after_the_last_snapshot_is_there_after_a_restart(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        model, _ = run.add_model("m", "lda", {}, policy=ON_DEMAND)
        run.submit(draft(dense(0))).result(WAIT)
        eventually(lambda: model.position == 0)
        assert run.snapshot("m").wait(WAIT)
        version = run.publish("m").version
    with running(tmp_path) as run:
        again = run.directory.model("m").published
        assert again is not None
        assert (again.version, again.position) == (version, 0)


def test_a_refined_projection_outlives_a_snapshot_taken_while_it_was_refined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path) as run:
        model, _ = run.add_model("m", "lda", {"scatter": "diagonal", "gamma": 1.0})
        run.submit(draft(dense(0))).result(WAIT)
        assert run.wait_until_all_include(0, WAIT)
        early = [model.freeze()]
        run.submit(draft(dense(1))).result(WAIT)
        assert run.wait_until_all_include(1, WAIT)
        assert run.snapshot("m").wait(WAIT)
        freeze = model.freeze
        monkeypatch.setattr(model, "freeze", lambda: early.pop() if early else freeze())
        assert run.refine("m").wait(WAIT)
        refined = model.published
        assert refined is not None
        assert refined.refined_at == 0
    with running(tmp_path) as run:
        again = run.directory.model("m").published
        assert again is not None
        assert (again.version, again.refined_at, again.projection.solution) == (refined.version, 0, "refined")


def test_an_unlearning_that_breaks_off_leaves_the_model_as_it_was_and_is_done_after_a_restart(tmp_path: Path) -> None:
    """The body of the second batch is damaged: one batch could be subtracted, the other could not."""
    with running(tmp_path, snapshot_rows=1, snapshot_seconds=None) as run:
        model, _ = run.add_model("m", "class_means", {})
        for seed in range(4):
            run.submit(draft(dense(seed))).result(WAIT)
        assert run.wait_until_all_include(3, WAIT)
        eventually(lambda: model.last_snapshot.position == 3)
        (bodies,) = (tmp_path / "log").glob("*.bodies")
        whole = bodies.read_bytes()
        second = body(dense(1))
        bodies.write_bytes(whole.replace(second, bytes(len(second))))
        run.unlearn(positions=[0, 1]).result(WAIT)
        eventually(lambda: model.status == "failed")
        assert model.rows == 80
        snapshot = run.snapshot("m")
        assert snapshot.wait(WAIT)
        assert (snapshot.error or {})["code"] == "model_failed"
        with pytest.raises(errors.ModelFailed, match="damaged_file"):
            run.publish("m")
        bodies.write_bytes(whole)
    with running(tmp_path) as run:
        assert run.wait_until_all_include(4, WAIT)
        means = run.directory.model("m").accumulator.freeze()
    with opened(tmp_path / "straight", m=("class_means", {})) as directory:
        put(directory, dense(2), dense(3))
        backfill(directory, [directory.model("m")], 1)
        wanted = directory.model("m").accumulator.freeze()
    assert means.rows == wanted.rows == 40
    np.testing.assert_allclose(means.centred().mean, wanted.centred().mean, rtol=1e-12)


def test_a_model_that_is_rebuilt_does_not_hold_up_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rebuild stands still at its first event; so it may until the engine stops."""
    with running(tmp_path) as run:
        rebuilt, _ = run.add_model("rebuilt", "ccipca", {})
        other, _ = run.add_model("other", "class_means", {})
        for seed in range(3):
            run.submit(draft(dense(seed))).result(WAIT)
        late, _ = run.add_model("late", "ccipca", {}, "now")
        assert run.wait_until_all_include(2, WAIT)
        reading, on = threading.Event(), threading.Event()
        events = run.directory.history.events

        def slow(*given: Any) -> Any:
            for event in events(*given):
                reading.set()
                assert on.wait(WAIT)
                yield event

        monkeypatch.setattr(run.directory.history, "events", slow)
        gone = run.unlearn([1]).result(WAIT).position
        assert reading.wait(WAIT)
        last = run.submit(draft(dense(9))).result(WAIT).position
        eventually(lambda: other.position == late.position == last)
        assert (other.rows, late.rows, rebuilt.rows, rebuilt.position) == (60, 20, 60, gone - 1)
        assert run.lag == 0
        assert run.snapshot("rebuilt").wait(WAIT)
        on.set()
        assert run.wait_until_all_include(last, WAIT)
        assert (rebuilt.rows, rebuilt.status) == (60, "live")
    with opened(tmp_path / "straight", m=("ccipca", {})) as directory:
        put(directory, dense(0), dense(2), dense(9))
        backfill(directory, [directory.model("m")], 2)
        straight = state_sha256(directory.model("m").accumulator.freeze())
    assert state_sha256(rebuilt.accumulator.freeze()) == straight


def test_a_rebuild_ends_with_the_engine_and_is_made_after_the_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path) as run:
        model, _ = run.add_model("m", "ccipca", {})
        for seed in range(3):
            run.submit(draft(dense(seed))).result(WAIT)
        assert run.wait_until_all_include(2, WAIT)
        events, read = run.directory.history.events, []

        def endless(*given: Any) -> Any:
            while True:
                for event in events(*given):
                    read.append(event)
                    yield event

        monkeypatch.setattr(run.directory.history, "events", endless)
        run.unlearn([1]).result(WAIT)
        eventually(lambda: len(read) > 10)
    assert (model.rows, model.position) == (60, 2)
    with running(tmp_path) as run:
        assert run.wait_until_all_include(3, WAIT)
        assert run.directory.model("m").rows == 40


def test_what_was_published_on_demand_is_there_again_after_a_kill(tmp_path: Path) -> None:
    """The copies are what kills leave; nothing was snapshotted by rows or seconds."""
    published = []
    with running(tmp_path / "a", publish=ON_DEMAND, snapshot_rows=None, snapshot_seconds=None) as run:
        model, _ = run.add_model("m", "class_means", {})
        run.add_model("never", "class_means", {})
        for seed in range(2):
            run.submit(draft(dense(seed))).result(WAIT)
            eventually(lambda: model.position == seed)  # noqa: B023
            published.append(run.publish("m"))
            shutil.copytree(tmp_path / "a", tmp_path / f"killed{seed}")
    for seed in range(2):
        with running(tmp_path / f"killed{seed}", publish=ON_DEMAND) as run:
            again = run.directory.model("m").published
            assert again is not None
            assert again[:2] == published[seed][:2]
            np.testing.assert_array_equal(again.projection.loadings, published[seed].projection.loadings)
            assert run.directory.model("never").published is None


def test_components_point_the_way_they_first_did_though_killed_before_a_snapshot_is_due(tmp_path: Path) -> None:
    """Over all rows alone the first component's largest loading, which is made positive, is another feature's."""

    def along(x: float, y: float, rows: int) -> Block:
        return Block(np.outer(np.linspace(-1.0, 1.0, rows), (x, y)))

    policy = PublishPolicy(rows=20, seconds=None, idle=False)
    with running(tmp_path / "a", snapshot_rows=None, snapshot_seconds=None) as run:
        model, _ = run.add_model("m", "pca", {"n_components": 1}, policy=policy)
        run.submit(draft(along(3.0, -1.0, 20))).result(WAIT)
        eventually(lambda: model.last_snapshot.version == 1)
        run.submit(draft(along(10.0, -30.0, 10))).result(WAIT)
        eventually(lambda: model.position == 1)
        assert model.published_version == 1
        shutil.copytree(tmp_path / "a", tmp_path / "killed")
    with running(tmp_path / "killed") as run:
        eventually(lambda: run.directory.model("m").position == 1)
        loadings = run.publish("m").projection.loadings
        np.testing.assert_allclose(loadings[:, 0], np.array([1.0, -3.0]) / np.sqrt(10.0), atol=0.02)


def test_a_projection_that_was_waited_for_is_snapshotted_when_it_is_asked_for(tmp_path: Path) -> None:
    with running(tmp_path, publish=SELDOM, snapshot_rows=None, snapshot_seconds=None) as run:
        model, _ = run.add_model("m", "class_means", {})
        run.submit(draft(dense(0))).result(WAIT)
        eventually(lambda: model.position == 0)
        assert run.publish("m").version == model.last_snapshot.version == 1
        run.submit(draft(dense(1))).result(WAIT)
        assert run.wait_until_all_include(1, WAIT)
        assert run.publish("m") is model.published
        assert model.published_version == model.last_snapshot.version == 2


def test_a_snapshot_that_overtakes_a_demand_leaves_what_was_published(tmp_path: Path) -> None:
    with running(tmp_path / "a", publish=ON_DEMAND, snapshot_rows=None, snapshot_seconds=None) as run:
        model, _ = run.add_model("m", "class_means", {})
        for seed in range(2):
            run.submit(draft(dense(seed))).result(WAIT)
        eventually(lambda: model.position == 1)
        solve = model.estimator.solve

        def overtaken(state: Any) -> Any:
            run.submit(draft(dense(2))).result(WAIT)
            eventually(lambda: model.position == 2)
            run._models.driver.snapshot_and_trim_log([(model, model.freeze())])
            return solve(state)

        model.estimator.solve = overtaken
        published = run.publish("m")
        model.estimator.solve = solve
        assert (published.position, model.last_snapshot.position) == (1, 2)
        shutil.copytree(tmp_path / "a", tmp_path / "killed")
    with running(tmp_path / "killed", publish=ON_DEMAND) as run:
        assert run.directory.model("m").published_version == published.version


def test_a_projection_that_was_waited_for_is_snapshotted_when_it_is_time(tmp_path: Path) -> None:
    """Though no row comes any more, and a snapshot of the same position is there."""
    with running(tmp_path, publish=SELDOM, snapshot_rows=1, snapshot_seconds=0.1) as run:
        model, _ = run.add_model("m", "class_means", {})
        run.submit(draft(dense(0))).result(WAIT)
        eventually(lambda: model.last_snapshot.position == 0)
        assert (model.last_snapshot.version, model.published) == (0, None)
        assert run.publish("m").version == model.last_snapshot.version == 1
        run.submit(draft(dense(1))).result(WAIT)
        eventually(lambda: model.last_snapshot.position == 1)
        assert run.wait_until_all_include(1, WAIT)
        eventually(lambda: model.snapshot_has_published)
        assert model.published_version == 2


def test_a_disk_that_takes_no_snapshot_keeps_no_projection_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise errors.InsufficientStorage("full")

    with running(tmp_path, publish=ON_DEMAND) as run:
        model, _ = run.add_model("m", "class_means", {})
        run.submit(draft(dense(0))).result(WAIT)
        eventually(lambda: model.position == 0)
        with monkeypatch.context() as patched:
            patched.setattr(driver_module, "write_snapshot_if_needed", full)
            assert run.publish("m").position == 0


def test_what_is_published_on_demand_is_not_published_by_a_stop(tmp_path: Path) -> None:
    with running(tmp_path, publish=ON_DEMAND) as run:
        model, _ = run.add_model("m", "class_means", {})
        run.add_model("idle", "class_means", {}, policy=PublishPolicy())
        run.submit(draft(dense(0))).result(WAIT)
        eventually(lambda: model.position == 0)
        version = run.publish("m").version
        run.submit(draft(dense(1))).result(WAIT)
    with running(tmp_path, publish=ON_DEMAND) as run:
        again = run.directory.model("m")
        assert (again.position, again.published_version, again.published.position) == (1, version, 0)  # type: ignore[union-attr]
        assert run.directory.model("idle").published.position == 1  # type: ignore[union-attr]


@pytest.mark.test_all
@pytest.mark.parametrize("idle", [False, pytest.param(True, marks=pytest.mark.test_all)])
def test_solving_takes_a_twentieth_of_a_processor_at_most(tmp_path: Path, idle: bool) -> None:
    """A solver that takes 0.1 s, asked for by every batch, of which ten come a second."""
    policy = PublishPolicy(rows=None if idle else 1, seconds=None, idle=idle)
    with running(tmp_path) as run:
        model, _ = run.add_model("m", "class_means", {}, policy=policy)
        solve, solved = model.estimator.solve, []

        def slow(state: Any) -> Any:
            solved.append(time.monotonic())
            time.sleep(0.1)
            return solve(state)

        model.estimator.solve = slow
        begun = time.monotonic()
        while time.monotonic() < begun + 3.0:
            run.submit(draft(dense(0))).result(WAIT)
            time.sleep(0.1)
        assert 1 <= len(solved) <= 2
        assert all(later - earlier >= 2.0 for earlier, later in pairwise(solved))
        assert run.wait_until_all_include(run.directory.position, WAIT)  # who waits is not kept waiting


def test_who_waited_before_a_model_was_there_has_not_asked_for_it(tmp_path: Path) -> None:
    with running(tmp_path, publish=SELDOM) as run:
        first, _ = run.add_model("first", "class_means", {})
        run.submit(draft(dense(0))).result(WAIT)
        assert run.wait_until_all_include(0, WAIT)
        assert first.published is not None
        later, _ = run.add_model("later", "class_means", {})
        eventually(lambda: later.status == "live")
        assert_stays(lambda: later.published is None, 0.2)


def test_what_was_frozen_before_does_not_take_the_place_of_what_is_published(tmp_path: Path) -> None:
    with running(tmp_path, publish=ON_DEMAND) as run:
        model, _ = run.add_model("m", "lda", {"scatter": "diagonal", "gamma": 1.0})
        early = []
        for seed in range(2):
            run.submit(draft(dense(seed))).result(WAIT)
            eventually(lambda: model.position == seed)  # noqa: B023
            early.append(model.freeze())
        newest = run.publish("m")
        assert model.publish_unless_refined_or_current(early[0]) is None
        assert model.published is newest
        assert run.refine("m").wait(WAIT)
        refined = model.published
        run.submit(draft(dense(2))).result(WAIT)
        eventually(lambda: model.position == 2)
        assert model.publish_unless_refined_or_current(model.freeze()) is None
        assert run.publish("m") is model.published is refined is not newest


def test_the_jobs_of_a_removed_model_are_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(tmp_path) as run:
        run.add_model("m", "lda", {"scatter": "diagonal", "gamma": 1.0})
        run.submit(draft(dense(0))).result(WAIT)
        assert run.wait_until_all_include(0, WAIT)
        begun, go_on = threading.Event(), threading.Event()

        def slow(*_: Any) -> None:
            begun.set()
            go_on.wait(WAIT)

        monkeypatch.setattr(run, "_refine_and_snapshot", slow)
        job = run.refine("m")
        assert run.refine("m") is job
        assert begun.wait(WAIT)
        run.remove_model("m")
        go_on.set()
        assert job.wait(WAIT)
        assert (job.state, job.target, job.model) == ("cancelled", None, "m")


def test_a_model_is_snapshotted_on_its_way_and_once_it_is_there(tmp_path: Path) -> None:
    """Though no row comes meanwhile, nor after."""
    with opened(tmp_path) as directory:
        put(directory, *(dense(seed) for seed in range(200)))
    with running(tmp_path, snapshot_rows=20, snapshot_seconds=None) as run:
        seen = []
        run.listen(lambda told: seen.append(told) if told["event"] == "snapshot" else None)
        model, _ = run.add_model("late", "class_means", {})
        eventually(lambda: model.last_snapshot.position == 199)
        assert model.status == "live"
    assert len({told["position"] for told in seen}) > 1


def test_snapshots_do_not_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written, go_on = [], threading.Event()

    def slow(model: Any, frozen: Any, path: Path) -> None:
        written.append(frozen.position)
        go_on.wait(WAIT)

    monkeypatch.setattr(driver_module, "write_snapshot_if_needed", slow)
    with running(tmp_path, snapshot_rows=1, snapshot_seconds=None) as run:
        run.add_model("m", "class_means", {})
        for seed in range(20):
            run.submit(draft(dense(seed))).result(WAIT)
        assert run.wait_until_all_include(19, WAIT)  # published all the same
        assert len(written) == 1
        go_on.set()


@pytest.mark.every_run
def test_retention_keeps_what_snapshots_need(tmp_path: Path) -> None:
    with opened(tmp_path, m=("class_means", {})) as directory:
        run = Running(directory, RunSettings(snapshot_rows=40, snapshot_seconds=None, retain_rows=100))
        run.start()
        sent = iter(range(1_000))
        eventually(lambda: run.submit(draft(dense(next(sent)))).result(WAIT).position > 55 and directory.log.first > 0)
        run.stop()
        last = directory.position
        assert directory.log.first <= last - 4
        with pytest.raises(errors.HistoryGone):
            run.directory.add_model("late", "class_means", {})
        with pytest.raises(errors.HistoryGone):
            directory.history.parse_named_removal([0], [])
        assert directory.history.parse_named_removal([last], []) == {last: None}
        directory.model("m").estimator.decay = 0.5
        with pytest.raises(errors.HistoryGone, match="rebuilt"):
            directory.history.parse_named_removal([last], [])
    with running(tmp_path) as run:
        run.submit(draft(dense(60))).result(WAIT)
        assert run.wait_until_all_include(last + 1, WAIT)
        assert run.directory.model("m").rows == (last + 2) * 20


def test_a_model_whose_catching_up_breaks_off_is_said_to_have_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise OSError(24, "Too many open files")

    with opened(tmp_path) as directory:
        put(directory, *(dense(i) for i in range(70)))
    with running(tmp_path) as run:
        monkeypatch.setattr(driver_module.advance, "backfill", broken)
        model, _ = run.add_model("m", "lda", {})
        eventually(lambda: model.status == "failed")
        assert model.failure is not None
        assert (model.failure.position, model.failure.code) == (0, "internal")
        assert "Too many open files" in model.failure.message
