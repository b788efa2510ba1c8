"""kill -9 at each step of what a directory goes through, the long form of tests/stream_dr/directory/test_killed_steps.py.

    python -m tests.campaigns.kill_steps [--runs 200] [--seed S] [--resume FILE]

A process puts batches, snapshots, unlearns, forgets, drops, begins models with saved estimators, deletes them and backs up,
in an order drawn at random, and is killed at a failpoint drawn at random, the n-th time it comes there. After each kill the
directory has to start, with everything that was told and nothing left over, and the next process goes on in it; every
tenth is a new one. Exits 1 where one does not.
"""

import argparse
import random
import shutil
import sys
import tempfile
import traceback
from pathlib import Path

from tests.campaigns import record
from tests.support import lives

KILLS = 10
"""Kills of one directory."""


def kill(folder: Path, seed: int) -> dict[str, float]:
    """What came of one process."""
    draw = random.Random(seed)
    what = draw.choice(list(lives.POINTS))
    point = f"{draw.choice(lives.POINTS[what])}=kill@{draw.randint(1, 3)}"
    try:
        status, told = lives.killed(folder / "D", point, lives.some_steps(seed), seed)
        if status not in (0, -9):
            raise AssertionError(f"the process ended with status {status}")
        lives.check(folder / "D", told)
    except Exception:
        print(f"seed {seed}, {point}:", flush=True)
        traceback.print_exc()
        return {f"failed: {what}": 1}
    return {f"killed: {what}" if status else "ended before": 1}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    done = record.Record(record.options(parser, runs=200))
    while done.done < done.runs:
        folder = Path(tempfile.mkdtemp())
        for number in range(done.done, min(done.done + KILLS, done.runs)):
            done.add(number + 1, kill(folder, done.seed + number))
        shutil.rmtree(folder)
    print(done.told())
    sys.exit(any(name.startswith("failed") for name in done.counts))


if __name__ == "__main__":
    main()
