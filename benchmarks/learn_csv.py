"""Learning a CSV of 20 numeric columns beside pyarrow reading it, alternated; medians, and memory by the file's size.

    python -m benchmarks.learn_csv [--rows 400000] [--rounds 5]

`fit` is stream_dr.fit(LDA(), path), `learn` what `stream-dr learn` does: shards in the directory, replayed through a model.
"""

import argparse
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

import stream_dr
from stream_dr.datasets.sources import open_source
from stream_dr.directory.directory import Directory
from stream_dr.directory.learned_sources import keep_as_shards
from stream_dr.running.replay import ReplaySettings, replay
from stream_dr.shards.dataset import open_dataset


def write(path: Path, rows: int) -> None:
    """A file of 20 numbers of six digits and a class a row."""
    X = np.random.default_rng(0).normal(size=(rows, 20)).round(6)
    columns = {f"c{j}": X[:, j] for j in range(20)} | {"y": np.where(X[:, 0] > 0, "up", "down")}
    pacsv.write_csv(pa.table(columns), path)


def read(path: Path) -> None:
    """By pyarrow's streaming reader."""
    with pacsv.open_csv(path) as reader:
        for _ in reader:
            pass


def fit(path: Path) -> None:
    """In memory."""
    stream_dr.fit(stream_dr.LDA(), path, label="y", progress=False)


def learn(path: Path) -> None:
    """Into a directory."""
    directory = path.parent / "d"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    shards = keep_as_shards(directory, open_source(path, label="y"))
    with Directory(directory) as opened:
        opened.add_model("lda", "lda", {})
        replay(opened, open_dataset(shards), ReplaySettings())


def seconds(what: Callable[[Path], None], path: Path) -> float:
    """Of one call."""
    begun = time.perf_counter()
    what(path)
    return time.perf_counter() - begun


def main() -> None:
    """Print rates and ratios."""
    given = argparse.ArgumentParser()
    given.add_argument("--rows", type=int, default=400_000)
    given.add_argument("--rounds", type=int, default=5)
    asked = given.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "small.csv"
        write(path, asked.rows // 10)
        for what in (read, fit, learn):  # compiled, and the memory of a tenth of the file
            what(path)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        path = path.with_name("data.csv")
        write_in_a_child(path, asked.rows)
        times = {what: [0.0] * asked.rounds for what in (read, fit, learn)}
        for turn in range(asked.rounds):
            for what, taken in times.items():
                taken[turn] = seconds(what, path)
        reading = statistics.median(times[read])
        for what, taken in times.items():
            median = statistics.median(taken)
            print(f"{what.__name__:6} {asked.rows / median:12,.0f} rows/s  {reading / median:5.2f} of reading")
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        print(
            f"peak memory grew by {grown / 1024:.0f} MiB from a tenth of {path.stat().st_size >> 20} MiB to all of it"
        )


def write_in_a_child(path: Path, rows: int) -> None:
    """`write`, in a process of its own, whose memory is not counted."""
    import multiprocessing

    child = multiprocessing.get_context("spawn").Process(target=write, args=(path, rows))
    child.start()
    child.join()


if __name__ == "__main__":
    main()
