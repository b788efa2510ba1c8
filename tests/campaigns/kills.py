"""kill -9 at random moments and at each step: nothing acknowledged may be missing, doubled or changed.

    python -m tests.campaigns.kills WHAT [--runs 100] [--seed S] [--resume FILE] [--clients 4] [--keep DIR]

service: client processes post and retry with the same keys, while the serving process is killed. Half of the kills are at a
failpoint (before or after the commit, within a snapshot, while events are dropped or overwritten). A part of 50 kills has a
directory of its own and one of the turns of tests/support/crash.py: plain batches; retention and unlearning, in small
files; recurrences that are rebuilt by unlearning; 32 models; a disk that refuses to write. Afterwards: no gap in the
positions, no key twice, everything acknowledged where it was acknowledged, nothing that `verify` finds, and every state
bit-equal to that of an uninterrupted run in the order of the log. A part that fails is left in DIR. The short form is
tests/service/test_exactly_once.py.

steps: a process puts batches, snapshots, unlearns, forgets, drops, begins models with saved estimators, deletes them and
backs up, in an order drawn at random, and is killed at a failpoint drawn at random, the n-th time it comes there. After
each kill the directory has to start, with everything that was told and nothing left over, and the next process continues
in it; every tenth is a new one. The short form is tests/stream_dr/directory/test_killed_steps.py.

log: a process appends to a log, drops and rewrites events, and is killed. The next one continues in the same folder. The
short form is in tests/stream_dr/log/test_crash.py.

workers: each run replays eight tasks into a new directory on a cluster of two Dask workers, one of which is killed at a
random moment and replaced. Every model must have the bits that two threads of this machine give. The short form is
tests/stream_dr/distributed/test_cluster.py.

Exits 1 if a run failed.
"""

import argparse
import random
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support import crash, lives, log_kills, record

PART = 50
"""Kills of one directory that is served."""

LIVES = 10
"""Kills of one directory whose steps are drawn."""


def tried(what: str, act: Callable[..., dict[str, float]], *arguments: Any) -> dict[str, float]:
    """Return the counts of a run, or that it failed."""
    try:
        return act(*arguments)
    except Exception:
        print(f"{what}:", flush=True)
        traceback.print_exc()
        return {f"failed: {what}": 1}


def service(done: record.Record, options: argparse.Namespace) -> None:
    """Kill a serving process."""
    names = [f"client{number}" for number in range(options.clients)]
    while done.done < done.runs:
        first, kills = done.done, min(PART, done.runs - done.done)
        turn = list(crash.TURNS)[first // PART % len(crash.TURNS)]
        with tempfile.TemporaryDirectory() as folder:
            counts = tried(f"{turn}, kills from {first}", part, Path(folder), turn, kills, done.seed + first, names)
            if options.keep is not None and turn not in counts:
                shutil.copytree(folder, options.keep / str(first))
        done.add(first + kills, counts)


def part(folder: Path, turn: str, kills: int, seed: int, names: list[str]) -> dict[str, float]:
    """Kill a serving process again and again in one directory, and check what is left."""
    left = crash.run(folder, kills, seed, names, turn=crash.TURNS[turn])
    return {
        "events acknowledged": crash.check(left, folder / "reference"),
        "of which unlearnings": sum(told.gone is not None for told in left.acknowledged.values()),
        "kills at failpoints": left.at_failpoints,
        turn: kills,
    }


def steps(done: record.Record, options: argparse.Namespace) -> None:
    """Kill a process at a step of what a directory goes through."""
    while done.done < done.runs:
        with tempfile.TemporaryDirectory() as folder:
            for number in range(done.done, min(done.done + LIVES, done.runs)):
                done.add(number + 1, step(Path(folder), done.seed + number))


def step(folder: Path, seed: int) -> dict[str, float]:
    """Kill one process at a failpoint that is drawn."""
    draw = random.Random(seed)
    what = draw.choice(list(lives.POINTS))
    point = f"{draw.choice(lives.POINTS[what])}=kill@{draw.randint(1, 3)}"
    return tried(f"{point}, seed {seed}", life, folder / "D", what, point, seed)


def life(path: Path, what: str, point: str, seed: int) -> dict[str, float]:
    """Run one process that may be killed, and check the directory."""
    status, told = lives.killed(path, point, lives.some_steps(seed), seed)
    if status not in (0, -9):
        raise AssertionError(f"the process ended with status {status}")
    lives.check(path, told)
    return {f"killed: {what}" if status else "ended before": 1}


def log(done: record.Record, options: argparse.Namespace) -> None:
    """Kill a process that appends. The first difference ends the run."""
    chance = random.Random(done.seed + done.done)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(done.done, done.runs):
            acknowledged, last = log_kills.kill_one(folder, done.seed + number, chance.uniform(0, 0.5))
            done.add(number + 1, {"most acknowledged": acknowledged, "most in the log": last})


def workers(done: record.Record, options: argparse.Namespace) -> None:
    """Kill Dask workers."""
    from stream_dr.distributed.parts import thread_plan_runner
    from tests.support.processes import Cluster, eight_tasks, kills, run

    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        folder = eight_tasks(scratch / "shards")
        wanted = run(scratch / "threads", folder, thread_plan_runner(2))
        cluster = Cluster(scratch)
        try:
            cluster.start(2)
            found = kills(cluster, folder, scratch, done.runs - done.done, done.seed + done.done)
        finally:
            cluster.end()
        done.add(done.runs, {"killed": len(found), "failed: other bits": sum(one != wanted for one in found)})


def main() -> None:
    """Run one of the four."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = {kind.__name__: kind for kind in (service, steps, log, workers)}
    parser.add_argument("what", metavar="WHAT", choices=kinds)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--keep", type=Path)
    options = record.options(parser, runs=100)
    done = record.Record(options)
    kinds[options.what](done, options)
    print(done.told())
    sys.exit(any(number for name, number in done.counts.items() if name.startswith("failed")))


if __name__ == "__main__":
    main()
