"""What the tests of the log share: events, a log filled with them, a process that dies."""

import os
import subprocess
import sys

from stream_dr.log.log import Log, draft


def drafts(start, count, size=1000):
    return [draft("rows", bytes([p % 256]) * size, 3, key=f"k{p}") for p in range(start, start + count)]


def segments(folder):
    return sorted(p for p in folder.iterdir() if p.name[0] == "0" and p.suffix == ".sqlite")


def filled(folder, count=50, **options):
    log = Log(folder, **{"segment_bytes": 10_000, **options})
    for start in range(0, count, 5):
        log.append(drafts(start, 5))
    return log


def killed(code, place, *arguments):
    """A Python process with a failpoint armed, ended."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "STREAM_DR_FAILPOINTS": place},
        capture_output=True,
        text=True,
        check=False,
    )
