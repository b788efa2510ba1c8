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
from stream_dr.running import workers as workers_module
from stream_dr.running.advance import backfill
from stream_dr.running.workers import Checkpoints, Workers
from tests.stream_dr.directory.batches import dense, opened, put


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


def test_due(directory: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(workers_module, "time", clock)
    snapshot = workers_module.snapshot

    def slow(*given: Any) -> Any:
        clock.now += 20
        return snapshot(*given)

    with ThreadPoolExecutor(1) as pool:
        by = Checkpoints(Workers(directory, pool), 1_000, 5.0)
        clock.now += 6
        assert by.due(list(directory.models.values())) == math.inf  # nothing was learned
        models = learn(directory, 0)
        assert by.due(models) == 105
        monkeypatch.setattr(workers_module, "snapshot", slow)
        by.look(models, 20)
        by.wait()
        assert models[0].snapshot_position == 0
        assert by.due(models) == math.inf
        learn(directory, 1)
        assert by.due(models) == 106 + 200  # it took 20 seconds
        by.look(models, 2_000)
        by.wait()
        assert models[0].snapshot_position == 0
        clock.now = 306
        by.look(models, 0)
        by.wait()
        assert models[0].snapshot_position == 1
        assert by.another().due(learn(directory, 2)) == clock.now + 5


def test_by_rows_alone(directory: Directory) -> None:
    with ThreadPoolExecutor(1) as pool:
        by = Checkpoints(Workers(directory, pool), 30, None)
        for seed, position in ((0, -1), (1, 1)):
            models = learn(directory, seed)
            by.look(models, 20)
            by.wait()
            assert models[0].snapshot_position == position


def test_one_at_a_time_and_what_it_could_not_write_is_raised_where_it_is_waited_for(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, done = threading.Event(), threading.Event()

    def broken(*_: Any) -> None:
        go_on.wait(20)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(workers_module, "snapshot", broken)
    with ThreadPoolExecutor(2) as pool:
        by = Checkpoints(Workers(directory, pool), None, 0.0, done.set)
        models = learn(directory, 0)
        by.look(models, 20)
        assert by.due(models) == math.inf
        go_on.set()
        with pytest.raises(OSError, match="Input"):
            by.wait()
        assert done.wait(20)
        assert by.due(models) <= time.monotonic() + 60
