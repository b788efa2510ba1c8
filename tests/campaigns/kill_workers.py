"""kill -9 of a Dask worker at random moments, the long form of tests/stream_dr/distributed/test_cluster.py.

    python -m tests.campaigns.kill_workers [--runs 10] [--seed 17]

Each run replays eight tasks into a new directory on a cluster of two workers, one of which is killed at a random moment and
replaced. Every model must have the bits that two threads of this machine give. Exit status 1 if one has not.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from stream_dr.distributed.local import thread_runner
from tests.support.processes import Cluster, eight_tasks, kills, run


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=17)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        folder = eight_tasks(scratch / "shards")
        wanted = run(scratch / "threads", folder, thread_runner(2))
        cluster = Cluster(scratch)
        try:
            cluster.start(2)
            began = time.perf_counter()
            found = kills(cluster, folder, scratch, options.runs, options.seed)
            seconds = time.perf_counter() - began
        finally:
            cluster.end()
    differ = sum(one != wanted for one in found)
    print(f"{options.runs} runs with a worker killed in each, {seconds:.0f} s: {differ} differ from two threads")
    sys.exit(bool(differ))


if __name__ == "__main__":
    main()
