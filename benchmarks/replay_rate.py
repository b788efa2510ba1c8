"""Replay from disk beside the same estimator in memory, alternated in one run: rows/s and their ratio.

    python benchmarks/replay_rate.py --rows 60000 --rounds 3
    python benchmarks/replay_rate.py --passes 1 --targets topics --models opls,cca,hsl
    python benchmarks/replay_rate.py --switch-interval 0.005        # Python's own, see threads.py

The rows are generated (RCV1-shaped, 47,236 features, 4 labels or 103) in 1,000-row batches. First what one batch costs,
stage by stage, with nothing beside it. In memory: the Blocks are held, and only partial_fit is timed. Replay: from the
files through log and model to the last row learned, and (`whole`) with the solve and the snapshots that end it, which cost
the same however many rows there were. Two processors are needed: one reads while the other learns; on a machine with less
to give, the ratio is that of processor time.
"""

import argparse
import hashlib
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from stream_dr import threads
from stream_dr.datasets.generate import write_rcv1_like
from stream_dr.directory.directory import Directory
from stream_dr.estimators import make
from stream_dr.models.schema import Limits
from stream_dr.running.replay import Progress, ReplaySettings, replay
from stream_dr.shards.dataset import open_dataset
from stream_dr.shards.file import file_buffer
from stream_dr.shards.seal import seal_of

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "iskm p=3": ("iskm", {"n_components": 3}),
    "ccipca p=10": ("ccipca", {"n_components": 10}),
    "lda": ("lda", {"gamma": 1.0}),
    "opls": ("opls", {"gamma": 1.0}),
    "cca": ("cca", {"gamma": 1.0}),
    "hsl": ("hsl", {"gamma": 1.0}),
}


def stages(dataset: Any) -> dict[str, float]:
    """Milliseconds a batch of each stage before learning, alone."""
    shard = dataset.shards[0]
    file, batches = file_buffer(shard.path), len(shard.batch_rows)

    def read() -> None:
        for batch in range(batches):
            shard.read(batch)

    work: dict[str, Callable[[], object]] = {
        "seal": lambda: seal_of(file, shard.sha256),
        "SHA-256": lambda: hashlib.sha256(file),
        "read and check": read,
    }
    return {name: min(timed(do) for _ in range(3)) / batches * 1e3 for name, do in work.items()}


def timed(do: Callable[[], object]) -> float:
    """Seconds it takes."""
    begun = time.perf_counter()
    do()
    return time.perf_counter() - begun


def in_memory(key: str, params: dict[str, Any], blocks: list[Any], passes: int) -> float:
    """Seconds that partial_fit takes over all blocks."""
    estimator = make(key, params)
    begun = time.perf_counter()
    for block in blocks * passes:
        estimator.partial_fit(block, *([block.y] if estimator.target_kinds else []))
    return time.perf_counter() - begun


def from_disk(models: dict[str, tuple[str, dict[str, Any]]], dataset: Any, passes: int) -> tuple[float, float]:
    """Seconds of a replay into a new directory: to the last row learned, and in all."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Directory(folder, limits=Limits(min_free_bytes=0), n_features=dataset.n_features)
        with directory:
            for number, (key, params) in enumerate(models.values()):
                directory.add_model(f"m{number}", key, params)
            begun, learned = time.perf_counter(), 0.0

            def watch(_: Progress) -> None:
                nonlocal learned
                learned = time.perf_counter() - begun

            replay(directory, dataset, ReplaySettings(loops=passes), watch)
            return learned, time.perf_counter() - begun


def main() -> None:
    """Print a line a model, and one for all of them in one pass (in memory: one after the other)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--passes", type=int, default=4, help="passes over the rows; they dilute what a run costs once")
    parser.add_argument("--targets", default="top4", choices=["top4", "topics"])
    parser.add_argument("--models", default="iskm,ccipca,lda,opls")
    parser.add_argument("--switch-interval", type=float, default=threads.SWITCH_INTERVAL, help="seconds, of the replay")
    parser.add_argument("--shards", type=Path, help="use these shards instead of generating")
    options = parser.parse_args()
    threads.SWITCH_INTERVAL = options.switch_interval
    models = {name: spec for name, spec in MODELS.items() if spec[0] in options.models.split(",")}
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
        where = options.shards or Path(folder) / "shards"
        if options.shards is None:
            write_rcv1_like(where, options.rows, targets=options.targets, seed=0)
        dataset = open_dataset(where)
        blocks = [block for _, block in dataset.events()]
        passes, rows = options.passes, dataset.rows * options.passes
        print("a batch alone: " + ", ".join(f"{name} {cost:.2f} ms" for name, cost in stages(dataset).items()))
        print(f"{dataset.rows} rows, {passes} passes, medians of {options.rounds}")
        print(f"{'model':<14}{'in memory':>12}{'replay':>12}{'ratio':>8}{'whole':>8}")
        for name, spec in models.items():
            show(name, rows, compared({name: spec}, dataset, blocks, passes, options.rounds))
        show("all together", rows, compared(models, dataset, blocks, passes, options.rounds))


def compared(models: dict[str, Any], dataset: Any, blocks: list[Any], passes: int, rounds: int) -> list[list[float]]:
    """Seconds in memory (one model after the other), to the last row learned from disk, and in all, of each round."""
    found = []
    for _ in range(rounds):
        memory = [in_memory(key, params, blocks, passes) for key, params in models.values()]
        found.append([sum(memory), *from_disk(models, dataset, passes)])
    return found


def show(name: str, rows: int, rounds: list[list[float]]) -> None:
    """One printed row: medians of rates, and of the rounds' own ratios."""
    memory, disk = (statistics.median(r[i] for r in rounds) for i in (0, 1))
    ratio, whole = (statistics.median(r[0] / r[i] for r in rounds) for i in (1, 2))
    print(f"{name:<14}{rows / memory:>12,.0f}{rows / disk:>12,.0f}{ratio:>8.2f}{whole:>8.2f}")


if __name__ == "__main__":
    main()
