"""How fast the log appends, by size of body and of group, beside a bare file written and synced the same way.

    python benchmarks/log_append.py [--bytes 200000000] [--dir D]

Prints, per body size and group: appends/s, MB/s, and the ratio to a bare file (write, fsync a group) in the same run,
alternated, medians of three.
"""

import argparse
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from stream_dr.streams.log import Log, draft

SHAPES = ((8_000, 1), (8_000, 32), (100_000, 1), (100_000, 8), (920_000, 1), (920_000, 4), (920_000, 16))


def append_log(folder: Path, body: bytes, group: int, count: int) -> float:
    """Seconds to append `count` bodies, `group` a transaction."""
    drafts = [draft("rows", body, 100, key=None)] * group
    with Log(folder) as log:
        start = time.perf_counter()
        for _ in range(count // group):
            log.append(drafts)
        return time.perf_counter() - start


def append_file(folder: Path, body: bytes, group: int, count: int) -> float:
    """Seconds for the same bytes into one file, synced once a group."""
    folder.mkdir()
    with open(folder / "file", "wb", buffering=0) as file:
        start = time.perf_counter()
        for _ in range(count // group):
            for _ in range(group):
                file.write(body)
            os.fdatasync(file.fileno())
        return time.perf_counter() - start


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=int, default=200_000_000, help="bytes appended per measurement")
    parser.add_argument("--dir", default=None, help="where to write (default: the system's temporary folder)")
    options = parser.parse_args()
    print(f"{'body bytes':>10} {'group':>5} {'appends/s':>10} {'MB/s':>7} {'bare file MB/s':>15} {'ratio':>6}")
    for size, group in SHAPES:
        body = os.urandom(size)
        count = max(min(options.bytes // size, 20_000) // group, 1) * group
        times: dict[str, list[float]] = {"log": [], "file": []}
        for _ in range(3):
            for name, run in (("log", append_log), ("file", append_file)):
                folder = Path(tempfile.mkdtemp(dir=options.dir))
                times[name].append(run(folder / "x", body, group, count))
                shutil.rmtree(folder)
        log, file = (statistics.median(times[name]) for name in ("log", "file"))
        mb = size * count / 1e6
        print(f"{size:>10} {group:>5} {count / log:>10.0f} {mb / log:>7.0f} {mb / file:>15.0f} {file / log:>6.2f}")


if __name__ == "__main__":
    main()
