"""How fast the log appends, by size of body and of group, beside a bare file written and synced as often.

    python benchmarks/log_append.py [--bytes 100000000] [--dir D]

Prints, per body size and group: appends/s, MB/s and milliseconds a group; the time of a bare file (pwritev, fdatasync a
group) as a part of the log's; and MB/s of reading the events back, 100 at a time. All in one run, alternated, medians of
five.
"""

import argparse
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from stream_dr.log.log import Log, draft

SHAPES = (
    (300, 1),
    (8_000, 1),
    (8_000, 32),
    (100_000, 1),
    (100_000, 8),
    (1_000_000, 1),
    (1_000_000, 4),
    (1_000_000, 16),
)


def append_log(folder: Path, body: bytes, group: int, groups: int) -> tuple[float, float]:
    """Seconds to append `groups` groups of `group` bodies, and to read them."""
    drafts = [draft("rows", body, 100, key=None)] * group
    with Log(folder) as log:
        start = time.perf_counter()
        for _ in range(groups):
            log.append(drafts)
        appended = time.perf_counter() - start
        after, start = -1, time.perf_counter()
        while events := log.read(after):
            after = events[-1].position
        return appended, time.perf_counter() - start


def append_file(folder: Path, body: bytes, group: int, groups: int) -> tuple[float, float]:
    """Seconds for the same bytes into one file, synced once a group, and none for reading."""
    folder.mkdir()
    file = os.open(folder / "file", os.O_RDWR | os.O_CREAT)
    start = time.perf_counter()
    for number in range(groups):
        os.pwritev(file, [body] * group, number * group * len(body))
        os.fdatasync(file)
    seconds = time.perf_counter() - start
    os.close(file)
    return seconds, 0.0


RUNS = {"log": append_log, "file": append_file}


def measure(size: int, group: int, total: int, where: str | None) -> str:
    """One line of the table."""
    body = os.urandom(size)
    groups = max(min(total // size, 500) // group, 1)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in RUNS}
    for _ in range(5):
        for name, run in RUNS.items():
            folder = Path(tempfile.mkdtemp(dir=where))
            times[name].append(run(folder / "x", body, group, groups))
            shutil.rmtree(folder)
    log, file = (statistics.median(seconds for seconds, _ in times[name]) for name in RUNS)
    read = statistics.median(seconds for _, seconds in times["log"])
    mb = size * group * groups / 1e6
    rates = f"{group * groups / log:>10.0f} {mb / log:>6.0f} {1e3 * log / groups:>9.2f} {file / log:>10.2f}"
    return f"{size:>10} {group:>5} {rates} {mb / read:>10.0f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=int, default=100_000_000, help="bytes appended per measurement")
    parser.add_argument("--dir", default=None, help="where to write (default: the system's temporary folder)")
    options = parser.parse_args()
    print("body bytes group  appends/s   MB/s  ms/group  bare file  read MB/s")
    for size, group in SHAPES:
        print(measure(size, group, options.bytes, options.dir), flush=True)


if __name__ == "__main__":
    main()
