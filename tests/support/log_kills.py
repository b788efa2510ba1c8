"""Kills of a process that appends to a log, at random moments.

    python -m tests.support.log_kills FOLDER SEED       # the child, which appends until it is killed

The child appends groups of events whose bodies follow from their positions, drops old events, rewrites some, and writes
each position to a pipe once `append` has returned. After the kill the log is opened, verified and compared with what came
through the pipe. No byte of a rewritten body may be left in any file.
"""

import hashlib
import random
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from stream_dr.log.log import Log
from tests.support.logs import draft

ROOT = Path(__file__).parents[2]
FILE_BYTES = 1 << 20
KEPT = 150


def body(position: int) -> bytes:
    """Return the body of the event at a position, 0 to 120 KB, in its row or in a file."""
    digest = hashlib.sha256(str(position).encode()).digest()
    return digest * (int.from_bytes(digest[:2], "big") // 17)


def rewritten(position: int) -> bytes:
    """Return the body of an event that was rewritten."""
    return b"%d was here" % position


def append_for_ever(folder: str, seed: int) -> None:
    """Append random groups, print each last position, and drop old events."""
    chance = random.Random(seed)
    with Log(folder, max_file_bytes=FILE_BYTES) as log:
        while True:
            start = log.last + 1
            span = range(start, start + chance.choice((1, 1, 3, 17)))
            group = [draft("rows", body(p), p % 7, key=f"k{p}", schema=f'"{p}"' if p % 50 == 0 else None) for p in span]
            print(log.append(group)[-1], flush=True)
            if chance.random() < 0.2:
                old = chance.randrange(log.first, log.last + 1)
                log.rewrite(old, rewritten(old), old % 7)
            log.drop_events_before(log.last - KEPT)


def kill_one(folder: str, seed: int, after: float) -> tuple[int, int]:
    """Kill one child `after` seconds from its first append.

    Return the last position that was acknowledged, and the last in the log.
    """
    command = [sys.executable, "-m", "tests.support.log_kills", folder, str(seed)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        first = child.stdout.readline()
        with suppress(subprocess.TimeoutExpired):
            child.wait(after)
    finally:
        child.send_signal(signal.SIGKILL)
    said = (first + child.stdout.read()).split("\n")
    child.wait()
    child.stdout.close()
    return int(said[-2]), check(folder, int(said[-2]))


def check(folder: str, acknowledged: int) -> int:
    """Compare the log with what must be there. Return its last position."""
    with Log(folder, max_file_bytes=FILE_BYTES) as log:
        if log.last < acknowledged:
            raise AssertionError(f"position {acknowledged} was acknowledged; the log ends at {log.last}")
        log.verify()
        events = log.read(log.first - 1, limit=10**6, max_bytes=10**10)
        if [e.position for e in events] != list(range(log.first, log.last + 1)):
            raise AssertionError("positions are not consecutive")
        for event in events:
            told = body(event.position)
            if event.body not in (told, rewritten(event.position)) or event.key != f"k{event.position}":
                raise AssertionError(f"event {event.position} is not what was appended")
        for position in range(log.last + 1):
            found = log.find_key(f"k{position}")
            if found is None or found.position != position:
                raise AssertionError(f"key k{position} is not found")
        if log.schema_changes() != [f'"{p}"' for p in range(0, log.last + 1, 50)]:
            raise AssertionError("schema changes are not all there")
        if log.rows_appended != sum(p % 7 for p in range(log.last + 1)):
            raise AssertionError("rows do not add up")
    files = {file.name: file.read_bytes() for file in log.path.iterdir()}
    for event in events:
        told = body(event.position)
        left = [name for name, content in files.items() if event.body != told and told and told[:32] in content]
        if left:
            raise AssertionError(f"the old body of event {event.position} is left in {left}")
    return events[-1].position


if __name__ == "__main__":
    append_for_ever(sys.argv[1], int(sys.argv[2]))
