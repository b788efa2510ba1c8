"""Catching up: models at different positions in one pass, from wherever they start."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stream_dr import errors
from stream_dr.models.snapshot import state_sha256
from stream_dr.running.advance import backfill
from stream_dr.threads import compute_ahead
from tests.support.batches import dense, opened, put


def test_models_at_different_positions_end_level(tmp_path: Path) -> None:
    with opened(tmp_path, a=("ccipca", {}), b=("ccipca", {})) as directory, ThreadPoolExecutor(2) as pool:
        put(directory, *(dense(i) for i in range(150)))
        a, b = directory.model("a"), directory.model("b")
        backfill(directory, [a], 99)
        assert (a.position, b.position) == (99, -1)
        backfill(directory, [a, b], directory.position, pool)
        assert a.position == b.position == 149
        assert state_sha256(a.accumulator.freeze()) == state_sha256(b.accumulator.freeze())


def test_a_page_may_end_it(tmp_path: Path) -> None:
    with opened(tmp_path, a=("class_means", {})) as directory:
        put(directory, *(dense(i) for i in range(150)))
        backfill(directory, list(directory.models.values()), 149, after_page=lambda steps: True)
        assert 0 < directory.model("a").position < 149


@pytest.mark.parametrize(("start", "rows"), [("start", 200), ("now", 0), (4, 120)])
def test_starts(start: str, rows: int, tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        put(directory, *(dense(i) for i in range(10)))
        model, _ = directory.add_model("m", "class_means", {}, start)  # type: ignore[arg-type]
        backfill(directory, [model], directory.position)
        assert (model.rows, model.position) == (rows, 9)


def test_history_that_is_gone(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        for i in range(20):
            put(directory, dense(i))
        assert directory.log.drop_events_before(12) == 12
        with pytest.raises(errors.HistoryGone, match="12"):
            directory.add_model("m", "class_means", {})
        model, _ = directory.add_model("m", "class_means", {}, 12)
        backfill(directory, [model], 19)
        assert model.rows == 160


def test_reading_ahead_gives_items_then_the_error() -> None:
    def items():  # type: ignore[no-untyped-def]
        yield from range(5)
        raise KeyError("end")

    reading = compute_ahead(items())
    assert [next(reading) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(KeyError):
        next(reading)
    reading = compute_ahead(number for number in range(1000))
    assert next(reading) == 0
    reading.close()  # type: ignore[attr-defined]
