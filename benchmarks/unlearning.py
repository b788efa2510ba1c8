"""Unlearning at size: a new recurrence over a log with unlearn events beside one without, ids looked up, ids appended.

    python benchmarks/unlearning.py [--rows 1000000] [--ids 10000] [--events 100] [--dir D]

Dense rows (d = 20) in batches of 1,000, each row with an id. Prints rows/s appended with ids and without; milliseconds an id
to look up, one a request and --ids / --events a request; and the seconds in which a new `ccipca` (p = 10) and a new `pca`
learn the log, before and after so many ids were unlearned in so many events, with the ratio; the recurrence's state is
compared, bit by bit, with one that learned the rows that are left. A file that Linux has read is in its page cache in both.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from stream_dr.arrow.codec import arrow_from_block, write_arrow
from stream_dr.directory.directory import Directory
from stream_dr.directory.draft import Receipt, rows_draft, unlearn_draft
from stream_dr.estimators import make
from stream_dr.models.snapshot import state_sha256
from stream_dr.rows.block import Block
from stream_dr.running.advance import backfill

ROWS, FEATURES = 1000, 20
MODELS: dict[str, dict[str, Any]] = {"ccipca": {"n_components": 10}, "pca": {"n_components": 10}}


def body(number: int, ids: bool) -> bytes:
    """One batch as Arrow."""
    random = np.random.default_rng(number)
    named = [f"user-{key:012x}" for key in _keys(number)] if ids else None
    X = random.normal(size=(ROWS, FEATURES)) * np.linspace(3, 1, FEATURES)
    return bytes(write_arrow([arrow_from_block(Block(X, ids=named))]))


def _keys(number: int) -> list[int]:
    return [(number * ROWS + row) * 2654435761 % (1 << 44) for row in range(ROWS)]


def appended(directory: Directory, batches: int, ids: bool) -> float:
    """Rows/s of parsing and appending so many batches, one at a time."""
    seconds = 0.0
    for number in range(batches):
        sent = body(number, ids)
        begun = time.perf_counter()
        (answer,) = directory.append([rows_draft(sent)])
        seconds += time.perf_counter() - begun
        assert isinstance(answer, Receipt), answer
    return batches * ROWS / seconds


def timed(run: Callable[[], object]) -> float:
    """Seconds that it takes."""
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def learned(directory: Directory, key: str) -> float:
    """Seconds in which a new model learns the log."""
    model, _ = directory.add_model("new", key, MODELS[key])
    seconds = timed(lambda: backfill(directory, [model], directory.position))
    assert model.failure is None, model.failure
    if not model.subtracts:
        assert state_sha256(model.accumulator.freeze()) == rebuilt(directory, key)
    directory.remove_model("new")
    return seconds


def rebuilt(directory: Directory, key: str) -> str:
    """The digest of a state that learned the rows that are left."""
    accumulator = make(key, MODELS[key]).accumulator()
    for _, block in directory.history.events():
        accumulator.add(block)
    return state_sha256(accumulator.freeze())


def looked_up(directory: Directory, ids: list[str], each: int) -> float:
    """Median milliseconds an id, `each` in a request."""
    requests = [ids[i : i + each] for i in range(0, len(ids), each)]
    seconds = [timed(lambda r=request: directory.history.pick([], r)) for request in requests]  # type: ignore[misc]
    return 1e3 * statistics.median(seconds) / each


def unlearn(directory: Directory, ids: list[str], events: int) -> None:
    """Unlearn the ids in so many events."""
    for some in np.array_split(np.array(ids), events):
        directory.append([unlearn_draft(directory.history.pick([], some.tolist()))])


def measure(folder: Path, rows: int, count: int, events: int) -> None:
    """Print all."""
    batches = rows // ROWS
    chosen = np.random.default_rng(0).choice(batches * ROWS, count, replace=False).tolist()
    ids = [f"user-{_keys(number // ROWS)[number % ROWS]:012x}" for number in chosen]
    with Directory(folder / "bare") as bare:
        print(f"appended without ids  {appended(bare, min(batches, 300), ids=False):>12.0f} rows/s", flush=True)
    with Directory(folder / "named") as directory:
        print(f"appended with ids     {appended(directory, batches, ids=True):>12.0f} rows/s", flush=True)
        for each in (1, max(1, count // events)):
            print(
                f"looked up, {each:>3} at once {looked_up(directory, ids[: 20 * each], each):>11.2f} ms an id",
                flush=True,
            )

        before = {key: statistics.median(learned(directory, key) for _ in range(3)) for key in MODELS}
        print(f"unlearned             {timed(lambda: unlearn(directory, ids, events)):>12.2f} s", flush=True)
        for key, bare_seconds in before.items():
            seconds = statistics.median(learned(directory, key) for _ in range(3))
            print(
                f"{key:<8} {bare_seconds:.2f} s before, {seconds:.2f} s after: {seconds / bare_seconds:.2f}", flush=True
            )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows in the log")
    parser.add_argument("--ids", type=int, default=10_000, help="ids that are unlearned")
    parser.add_argument("--events", type=int, default=100, help="events that unlearn them")
    parser.add_argument("--dir", default=None, help="where to write (default: the system's temporary folder)")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=options.dir))
    try:
        with threadpool_limits(1):
            measure(folder, options.rows, options.ids, options.events)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
