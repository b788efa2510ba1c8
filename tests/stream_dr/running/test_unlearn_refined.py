"""Unlearned rows are not served: by refined models, by models that are seldom published, by older versions."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_dr import LDA, errors
from stream_dr.directory.directory import Directory
from stream_dr.directory.draft import unlearn_draft
from stream_dr.models.entry import PublishPolicy
from stream_dr.models.model import Model
from stream_dr.models.snapshot import write_snapshot_if_needed
from stream_dr.running.advance import backfill
from stream_dr.running.refine import refine_model
from stream_dr.running.running import Running, RunSettings
from tests.support.batches import SMALL, dense, draft, opened, put
from tests.support.waiting import assert_stays, wait_until

WAIT = 20.0
DIAGONAL = {"scatter": "diagonal", "gamma": 1.0}
ON_DEMAND = PublishPolicy(rows=None, seconds=None, idle=False)
SELDOM = PublishPolicy(rows=10**9, seconds=None, idle=False)


@contextmanager
def running(path: Path, **settings: Any) -> Iterator[Running]:
    """A directory being kept current."""
    with Directory(path, limits=SMALL) as directory:
        run = Running(directory, RunSettings(**settings))
        run.start()
        try:
            yield run
        finally:
            run.stop()


def learn(run: Running, *seeds: int) -> None:
    """Append batches of these seeds, and wait for the models."""
    for seed in seeds:
        position = run.submit(draft(dense(seed, 30))).result(WAIT).position
        assert run.wait_until_all_include(position, WAIT)


def unlearn(run: Running, *positions: int) -> int:
    """Unlearn all rows of some events; the position of this event."""
    return run.unlearn(positions=positions).result(WAIT).position


def loadings(model: Model) -> Any:
    assert model.published is not None
    return np.abs(model.published.projection.loadings)  # type: ignore[attr-defined]


def exact_loadings(*seeds: int) -> Any:
    """Loadings of an LDA of these batches, from all of the scatter matrix."""
    exact = LDA(gamma=1.0)
    for seed in seeds:
        exact.partial_fit(dense(seed, 30).X, dense(seed, 30).y)
    return np.abs(exact.components_.T)


def refined(directory: Directory, name: str = "m", batches: int = 4) -> Model:
    """A refined model of some batches, with a snapshot."""
    put(directory, *(dense(seed, 30) for seed in range(batches)))
    model = directory.model(name)
    refine_model(directory, model, 1e-9, 40)
    return model


@contextmanager
def refines_held(run: Running, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Every reading of the log stops at its first event until the block ends; the event says that one has come there."""
    there, go_on = threading.Event(), threading.Event()
    events = run.directory.history.events

    def held(*given: Any, **named: Any) -> Iterator[Any]:
        for event in events(*given, **named):
            there.set()
            go_on.wait(WAIT)
            yield event

    with monkeypatch.context() as patched:
        patched.setattr(run.directory.history, "events", held)
        try:
            yield there
        finally:
            go_on.set()


@pytest.mark.parametrize("decay", [1.0, 0.999999])
def test_a_refined_model_is_refined_again(tmp_path: Path, decay: float) -> None:
    with running(tmp_path) as run:
        model, _ = run.add_model("m", "lda", DIAGONAL | {"decay": decay})
        learn(run, 0, 1, 2, 3)
        assert run.refine("m", 1e-9, 40).wait(WAIT)
        assert model.published is not None
        assert model.published.refined_at == 3
        position = unlearn(run, 0)
        assert run.future_until_all_include(position).result(WAIT) is None
        assert (model.published.refined_at, model.published.rows, model.stale_rows) == (4, 90, 0)
        np.testing.assert_allclose(loadings(model), exact_loadings(1, 2, 3), atol=1e-3)


def test_what_a_refine_reads_is_unlearned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many events come while one refine runs: it starts again, and one projection is published."""
    told: list[int] = []
    with running(tmp_path) as run:
        model, _ = run.add_model("m", "lda", DIAGONAL)
        learn(run, *range(6))
        assert run.refine("m").wait(WAIT)
        before = model.published
        run.listen(lambda event: told.append(event["position"]) if event["event"] == "published" else None)
        with refines_held(run, monkeypatch) as reads:
            job = run.refine("m")
            assert reads.wait(WAIT)
            positions = [unlearn(run, batch) for batch in (0, 1, 2)]
            wait_until(lambda: model.position == positions[-1])
            waits = [run.future_until_all_include(position) for position in positions]
            assert (model.stale_rows, model.published) == (90, before)
            assert not any(future.done() for future in waits)
        assert [future.result(WAIT) for future in waits] == [None, None, None]
        assert job.wait(WAIT)
        assert (job.state, told) == ("done", [positions[-1]])
        assert (loadings(model).shape, model.stale_rows) == ((4, 2), 0)
        np.testing.assert_allclose(loadings(model), exact_loadings(3, 4, 5), atol=1e-3)


def test_a_first_refine_does_not_bring_unlearned_rows_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(tmp_path) as run:
        model, _ = run.add_model("m", "lda", DIAGONAL)
        learn(run, *range(4))
        with refines_held(run, monkeypatch) as reads:
            job = run.refine("m")
            assert reads.wait(WAIT)
            assert run.future_until_all_include(unlearn(run, 0)).result(WAIT) is None
        assert job.wait(WAIT)
        assert model.published is not None
        assert (job.state, model.published.refined_at, model.published.rows) == ("done", 4, 90)


@pytest.mark.parametrize("snapshotted", [False, True])
def test_rows_taken_out_before_a_kill_are_known_after_it(tmp_path: Path, snapshotted: bool) -> None:
    with opened(tmp_path, m=("lda", DIAGONAL)) as directory:
        model = refined(directory)
        put(directory, dense(4, 30))
        directory.append([unlearn_draft({0: None, 1: [0, 1]}), unlearn_draft({2: [5]})])
        if snapshotted:
            backfill(directory, [model], directory.position)
            write_snapshot_if_needed(model, model.freeze(), directory.path)
    with opened(tmp_path) as directory:
        model = directory.model("m")
        assert model.position == (6 if snapshotted else 3)
        backfill(directory, [model], directory.position)
        assert (model.rows, model.stale_rows, model.must_refine_again) == (117, 33 + 30, True)
    with running(tmp_path) as run:
        model = run.directory.model("m")
        assert run.future_until_all_include(6).result(WAIT) is None
        assert model.published is not None
        assert (model.published.refined_at, model.published.rows, model.stale_rows) == (6, 117, 0)


def test_a_refine_that_a_stop_ends_is_made_after_the_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path, m=("lda", DIAGONAL)) as directory:
        refined(directory)
    with running(tmp_path) as run, refines_held(run, monkeypatch) as reads:
        unlearn(run, 0)
        assert reads.wait(WAIT)
    with running(tmp_path) as run:
        assert run.future_until_all_include(4).result(WAIT) is None
        assert run.directory.model("m").published.refined_at == 4  # type: ignore[union-attr]


def test_a_saved_model_serves_its_solution_of_one_pass(tmp_path: Path) -> None:
    estimator = LDA(**DIAGONAL).fit(dense(9, 30).X, dense(9, 30).y)  # type: ignore[arg-type]
    estimator.refine([(dense(9, 30).X, dense(9, 30).y)])
    with running(tmp_path) as run:
        model, _ = run.add_saved("m", estimator)
        learn(run, 0, 1)
        assert model.published is not None
        assert model.published.projection.solution == "refined"
        assert run.future_until_all_include(unlearn(run, 0)).result(WAIT) is None
        assert (model.published.projection.solution, model.published.rows, model.stale_rows) == ("diagonal", 60, 0)


@pytest.mark.parametrize(("key", "solution"), [("lda", "diagonal"), ("pca", None)])
def test_rows_of_a_log_that_was_dropped(tmp_path: Path, key: str, solution: str | None) -> None:
    """LDA has a solution of one pass; PCA of a diagonal has none."""
    params = DIAGONAL if key == "lda" else {"scatter": "diagonal", "n_components": 2}
    with opened(tmp_path, m=(key, params)) as directory:
        model = refined(directory)
        put(directory, dense(4, 30), dense(5, 30))
        for _ in range(2):
            backfill(directory, [model], directory.position)
            write_snapshot_if_needed(model, model.freeze(), directory.path)
            put(directory, dense(6, 30))
        assert directory.retention.drop_unneeded_events(30) > 0
        kept = directory.log.first
    with running(tmp_path) as run:
        model = run.directory.model("m")
        wait_until(lambda: model.position == 7, WAIT)
        assert model.published is not None
        version = model.published.version
        reason = run.future_until_all_include(unlearn(run, max(kept, 6))).result(WAIT)
        published = model.published
        assert (published and published.projection.solution) == solution
        assert (reason is None) == (solution is not None)
        with pytest.raises(errors.UnknownVersion):
            model.version(version)
    with Directory(tmp_path, writable=False) as directory:
        assert (directory.model("m").published is None) == (solution is None)


def test_a_refine_that_is_cancelled_leaves_no_unlearned_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path, m=("lda", DIAGONAL)) as directory:
        refined(directory)
    with running(tmp_path) as run:
        model = run.directory.model("m")
        with refines_held(run, monkeypatch) as reads:
            position = unlearn(run, 0)
            assert reads.wait(WAIT)
            (job,) = run.jobs
            job.cancel()
        assert run.future_until_all_include(position).result(WAIT) is None
        assert model.published is not None
        assert (model.published.projection.solution, model.published.rows) == ("diagonal", 90)


def test_a_model_without_a_rule_is_published_on_request_alone(tmp_path: Path) -> None:
    with running(tmp_path, publish=ON_DEMAND) as run:
        model, _ = run.add_model("m", "class_means", {})
        run.add_model("other", "class_means", {}, policy=PublishPolicy())
        learn(run, 0, 1)
        assert (model.position, model.published) == (1, None)
        version = run.publish("m").version
        learn(run, 2)

        # What it serves has no row of batch 2.
        assert run.future_until_all_include(unlearn(run, 2)).result(WAIT) is None
        position = unlearn(run, 0)
        reason = run.future_until_all_include(position).result(WAIT)
        assert reason is not None
        assert "POST /models/m/publish" in reason
        assert (model.published_version, model.stale_rows) == (version, 30)
        learn(run, 5)
        assert (model.published_version, model.stale_rows) == (version, 60)
        assert run.publish("m").rows == 60
        assert run.future_until_all_include(position).result(WAIT) is None
    with running(tmp_path) as run:
        assert run.directory.model("m").stale_rows == 0


def test_a_second_request_to_unlearn_served_rows_waits_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(tmp_path) as run:
        refined, _ = run.add_model("refined", "lda", DIAGONAL)
        run.add_model("demand", "class_means", {}, policy=ON_DEMAND)
        learn(run, 0, 1)
        run.publish("demand")
        assert run.refine("refined").wait(WAIT)
        with refines_held(run, monkeypatch) as reads:
            unlearn(run, 0)
            assert reads.wait(WAIT)
            again = unlearn(run, 0)
            reason = run.future_until_all_include(again).result(WAIT)
            assert reason is not None
            assert "POST /models/demand/publish" in reason
            run.publish("demand")
            future = run.future_until_all_include(again)
            assert refined.stale_rows == 30
            assert not future.done()
        assert future.result(WAIT) is None
        assert run.future_until_all_include(unlearn(run, 0)).result(WAIT) is None


def test_a_model_that_is_seldom_published_is_published_at_once(tmp_path: Path) -> None:
    with running(tmp_path, publish=SELDOM) as run:
        model, _ = run.add_model("m", "class_means", {})
        learn(run, 0, 1)
        run.submit(draft(dense(2, 30))).result(WAIT)
        wait_until(lambda: model.position == 2, WAIT)
        assert_stays(lambda: model.stale_rows == 30, 0.1)
        unlearn(run, 0)
        wait_until(lambda: model.stale_rows == 0, WAIT)


def test_versions_older_than_the_event_are_gone(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        model, _ = run.add_model("m", "class_means", {})
        learn(run, 0, 1, 2)
        older = model.versions.numbers
        learn(run, 3)
        assert run.future_until_all_include(unlearn(run, 1)).result(WAIT) is None
        for number in older:
            with pytest.raises(errors.UnknownVersion):
                model.version(number)
        newest = model.published
        assert newest is not None
        assert model.versions.numbers == [newest.version]
        learn(run, 4)
        assert model.version(newest.version) is newest


def test_all_rows_are_unlearned_while_they_are_solved(tmp_path: Path) -> None:
    with running(tmp_path, publish=ON_DEMAND) as run:
        model, _ = run.add_model("m", "class_means", {})
        learn(run, 0)
        solve = model.estimator.solve

        def emptied(state: Any) -> Any:
            position = unlearn(run, 0)
            wait_until(lambda: model.position == position, WAIT)
            return solve(state)

        model.estimator.solve = emptied  # type: ignore[method-assign]
        with pytest.raises(errors.NotFitted):
            run.publish("m")
        assert (model.published, model.versions.numbers) == (None, [])
