"""How fast the log appends, by size of body and of group, beside a bare file written and synced the same way.

    python benchmarks/log_append.py [--bytes 200000000] [--dir D] [--page-bytes 16384]

Prints, per body size and group: appends/s, MB/s, and the ratio to a bare file (write, fsync a group) in the same run,
alternated, medians of three; and MB/s of reading the events back, 100 at a time.
"""

import argparse
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from stream_dr.streams import segment
from stream_dr.streams.log import Log, draft

SHAPES = ((8_000, 1), (8_000, 32), (100_000, 1), (100_000, 8), (920_000, 1), (920_000, 4), (920_000, 16))


def append_log(folder: Path, body: bytes, group: int, count: int) -> tuple[float, float]:
    """Seconds to append `count` bodies, `group` a transaction, and to read them."""
    drafts = [draft("rows", body, 100, key=None)] * group
    with Log(folder) as log:
        start = time.perf_counter()
        for _ in range(count // group):
            log.append(drafts)
        appended = time.perf_counter() - start
        after, start = -1, time.perf_counter()
        while events := log.read(after):
            after = events[-1].position
        return appended, time.perf_counter() - start


def append_file(folder: Path, body: bytes, group: int, count: int) -> tuple[float, float]:
    """Seconds for the same bytes into one file, synced once a group, and none for reading."""
    folder.mkdir()
    with open(folder / "file", "wb", buffering=0) as file:
        start = time.perf_counter()
        for _ in range(count // group):
            for _ in range(group):
                file.write(body)
            os.fdatasync(file.fileno())
        return time.perf_counter() - start, 0.0


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=int, default=200_000_000, help="bytes appended per measurement")
    parser.add_argument("--dir", default=None, help="where to write (default: the system's temporary folder)")
    parser.add_argument("--page-bytes", type=int, default=segment.PAGE_BYTES, help="SQLite's page size")
    options = parser.parse_args()
    segment.PAGE_BYTES = options.page_bytes
    print("body bytes group  appends/s    MB/s  bare file MB/s  ratio  read MB/s")
    for size, group in SHAPES:
        body = os.urandom(size)
        count = max(min(options.bytes // size, 20_000) // group, 1) * group
        times: dict[str, list[tuple[float, float]]] = {"log": [], "file": []}
        for _ in range(3):
            for name, run in (("log", append_log), ("file", append_file)):
                folder = Path(tempfile.mkdtemp(dir=options.dir))
                times[name].append(run(folder / "x", body, group, count))
                shutil.rmtree(folder)
        log, file = (statistics.median(seconds for seconds, _ in times[name]) for name in ("log", "file"))
        read = statistics.median(seconds for _, seconds in times["log"])
        mb = size * count / 1e6
        rates = f"{count / log:>10.0f} {mb / log:>7.0f} {mb / file:>15.0f} {file / log:>6.2f} {mb / read:>10.0f}"
        print(f"{size:>10} {group:>5} {rates}")


if __name__ == "__main__":
    main()
