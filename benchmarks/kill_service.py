"""kill -9 of the serving process at random moments, the long form of tests/service/test_exactly_once.py.

    python -m benchmarks.kill_service [--kills 50] [--clients 3] [--seed S]

Client processes post and retry with the same keys; half of the kills are at a failpoint (before or after the commit,
within a snapshot). Afterwards: no gap in the positions, no key twice, everything acknowledged where it was acknowledged,
and every state bit-equal to that of an uninterrupted run in the order of the log.
"""

import argparse
import random
import tempfile
import time
from pathlib import Path

from tests.service import crash


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    names = [f"client{number}" for number in range(options.clients)]
    with tempfile.TemporaryDirectory() as folder:
        begun = time.monotonic()
        left = crash.run(Path(folder), options.kills, options.seed, names)
        batches = crash.check(left, Path(folder) / "reference")
        seconds = time.monotonic() - begun
    print(f"{options.kills} kills, {left.at_failpoints} at failpoints, {options.clients} clients, {seconds:.0f} s")
    print(f"{batches} batches, each acknowledged and learned exactly once; states bit-equal to an uninterrupted run's")


if __name__ == "__main__":
    main()
