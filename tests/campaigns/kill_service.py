"""kill -9 of the serving process at random moments, the long form of tests/service/test_exactly_once.py.

    python -m tests.campaigns.kill_service [--runs 100] [--seed S] [--resume FILE] [--clients 4] [--keep DIR]

Client processes post and retry with the same keys; half of the kills are at a failpoint (before or after the commit, within
a snapshot, while events are dropped or overwritten). A part of 50 kills has a directory of its own and one of the turns of
crash.py: plain batches; retention and unlearning, in small files; recurrences that are rebuilt by unlearning; 32 models; a
disk that refuses to write. Afterwards: no gap in the positions, no key twice, everything acknowledged where it was
acknowledged, nothing that `verify` finds, and every state bit-equal to that of an uninterrupted run in the order of the log.
A part that fails is told, left in DIR, and counted; exits 1 then.
"""

import argparse
import shutil
import sys
import tempfile
import traceback
from pathlib import Path

from tests.campaigns import record
from tests.support import crash

PART = 50


def part(folder: Path, first: int, kills: int, seed: int, names: list[str]) -> dict[str, float]:
    """What came of one part."""
    turn = list(crash.TURNS)[first // PART % len(crash.TURNS)]
    try:
        left = crash.run(folder, kills, seed + first, names, turn=crash.TURNS[turn])
        events = crash.check(left, folder / "reference")
    except Exception:
        print(f"kills from {first}, {turn}:", flush=True)
        traceback.print_exc()
        return {f"failed: {turn}": 1}
    gone = sum(told.gone is not None for told in left.acknowledged.values())
    return {
        "events acknowledged": events,
        "of which unlearnings": gone,
        "kills at failpoints": left.at_failpoints,
        turn: kills,
    }


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--keep", type=Path)
    options = record.options(parser, runs=100)
    done = record.Record(options)
    names = [f"client{number}" for number in range(options.clients)]
    while done.done < done.runs:
        folder, kills = Path(tempfile.mkdtemp()), min(PART, done.runs - done.done)
        counts = part(folder, done.done, kills, done.seed, names)
        if options.keep is not None and any(name.startswith("failed") for name in counts):
            shutil.copytree(folder, options.keep / str(done.done))
        shutil.rmtree(folder)
        done.add(done.done + kills, counts)
    print(done.told())
    sys.exit(any(name.startswith("failed") for name in done.counts))


if __name__ == "__main__":
    main()
