"""When a snapshot is due: by rows or seconds, never while one is taken, at most a tenth of the time; and of what."""

import math
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from stream_dr.directory.directory import Directory
from stream_dr.models.model import Model
from stream_dr.running import driver as driver_module
from stream_dr.running.advance import backfill
from stream_dr.running.driver import Driver, EngineEvent, EventHandler, RunSettings, ignore_event
from stream_dr.running.replay import ON_DEMAND
from tests.support.batches import dense, opened, put


class Clock:
    """Time, set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Directory]:
    with opened(tmp_path, m=("class_means", {})) as directory:
        yield directory


def learn(directory: Directory, seed: int) -> list[Model]:
    put(directory, dense(seed))
    models = list(directory.models.values())
    backfill(directory, models, directory.position)
    return models


def driven(
    directory: Directory, pool: ThreadPoolExecutor, on_event: EventHandler = ignore_event, **settings: Any
) -> Driver:
    return Driver(directory, RunSettings(ON_DEMAND, **settings), pool, pool, on_event)


def written(pool: ThreadPoolExecutor) -> None:
    """Wait for what the pool, which has one thread, was given before."""
    pool.submit(lambda: None).result()


def test_due(directory: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(driver_module, "time", clock)
    write = driver_module.write_snapshot_if_needed

    def slow(*given: Any) -> Any:
        clock.now += 20
        return write(*given)

    with ThreadPoolExecutor(1) as pool:
        driver = driven(directory, pool, snapshot_rows=1_000, snapshot_seconds=5.0)
        clock.now += 6
        assert driver.next_due_time(list(directory.models.values())) == math.inf  # nothing was learned
        models = learn(directory, 0)
        assert driver.next_due_time(models) == 105
        monkeypatch.setattr(driver_module, "write_snapshot_if_needed", slow)
        driver.start_due_work(models, 20)
        written(pool)
        assert models[0].last_snapshot.position == 0
        assert driver.next_due_time(models) == math.inf
        learn(directory, 1)
        assert driver.next_due_time(models) == 106 + 200  # it took 20 seconds
        driver.start_due_work(models, 2_000)
        written(pool)
        assert models[0].last_snapshot.position == 0
        clock.now = 306
        driver.start_due_work(models)
        written(pool)
        assert models[0].last_snapshot.position == 1
        other = driven(directory, pool, snapshot_seconds=5.0)
        assert other.next_due_time(learn(directory, 2)) == clock.now + 5


def test_by_rows_alone(directory: Directory) -> None:
    with ThreadPoolExecutor(1) as pool:
        driver = driven(directory, pool, snapshot_rows=30, snapshot_seconds=None)
        for seed, position in ((0, -1), (1, 1)):
            models = learn(directory, seed)
            driver.start_due_work(models, 20)
            written(pool)
            assert models[0].last_snapshot.position == position


def test_one_at_a_time_and_one_that_could_not_be_written_is_told_and_tried_again(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, ended = threading.Event(), threading.Event()

    def broken(*_: Any) -> None:
        go_on.wait(20)
        raise OSError(5, "Input/output error")

    def on_event(event: EngineEvent, **details: Any) -> None:
        if event is EngineEvent.SNAPSHOTS_ENDED:
            ended.set()

    with ThreadPoolExecutor(1) as pool:
        driver = driven(directory, pool, on_event, snapshot_seconds=0.0)
        models = learn(directory, 0)
        with monkeypatch.context() as patched:
            patched.setattr(driver_module, "write_snapshot_if_needed", broken)
            driver.start_due_work(models, 20)
            assert driver.next_due_time(models) == math.inf
            go_on.set()
            assert ended.wait(20)
            with pytest.raises(OSError, match="Input"):
                driver.snapshot_and_trim_log([(model, model.freeze()) for model in models])
        assert driver.next_due_time(models) <= time.monotonic() + 60
        driver.publish_and_snapshot_all(models)
        assert models[0].last_snapshot.position == 0
