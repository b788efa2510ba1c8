"""What the tests of the log share: events, a log filled with them, a process that dies, what is on the disk."""

import os
import subprocess
import sys

from stream_dr.log.event import EventDraft, xxh64_digest
from stream_dr.log.log import Log


def draft(kind, body, rows, key=None, schema=None):
    """Return an event without a position, whose fingerprint is the digest of its body."""
    return EventDraft(kind, key, xxh64_digest(body), rows, body, schema)


def drafts(start, count, size=1000):
    return [draft("rows", bytes([p % 256]) * size, 3, key=f"k{p}") for p in range(start, start + count)]


def bodies(folder):
    """The files of bodies, oldest first."""
    return sorted(folder.glob("*.bodies"))


def filled(folder, count=50, **options):
    log = Log(folder, **{"max_file_bytes": 10_000, **options})
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


def left_of(secret, folder):
    """The files that hold the first bytes of something, seen by another process: a file that this one closes loses the
    locks that SQLite holds on it."""
    look = "[p.name for p in pathlib.Path(sys.argv[1]).iterdir() if bytes.fromhex(sys.argv[2]) in p.read_bytes()]"
    code = f"import pathlib, sys; print(*{look})"
    command = [sys.executable, "-c", code, str(folder), secret[:12].hex()]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
