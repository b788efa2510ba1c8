"""Forking: starts the service again and again, quickly; run as a program by crash.py.

Reads one JSON line per launch ({"settings", "failpoints", "answer_first", "file_bytes", "room"}), forks a child that serves,
and prints the child's pid. The parent has imported everything and compiled what the estimators in its arguments use, so a
launch costs milliseconds.

answer_first is the switch that must make the crash test fail: in that child alone, appends are acknowledged before they are
committed. room: once it answers, no file may become longer than the longest is, and so many bytes; None: as it likes.
"""

import functools
import json
import os
import resource
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import stream_dr
from service.serve import serve
from service.settings import Settings
from stream_dr import failpoints
from stream_dr.log import folder
from stream_dr.log.log import Log

LATE = 0.2
"""Seconds by which a commit comes after its answer in an answer_first child: long enough for the answer to be read."""


def answer_first() -> None:
    """Break the promise: Log.append returns positions at once and commits a little later, and nobody looks at the start
    whether the log has lost its end."""
    commit, pool = Log.append, ThreadPoolExecutor(1)
    promised: dict[int, int] = {}

    def late(log: Log, drafts: Any, also: Any) -> None:
        time.sleep(LATE)
        commit(log, drafts, also)

    def append(log: Log, drafts: Any, also: Any = None) -> list[int]:
        first = promised.get(id(log), log.last + 1)
        promised[id(log)] = first + len(drafts)
        pool.submit(late, log, drafts, also)
        return list(range(first, first + len(drafts)))

    Log.append = append  # type: ignore[method-assign]
    folder.check_log_reaches = lambda path, known: None


def fill(told: dict[str, Any]) -> None:
    """Let files grow by `room` bytes only."""
    if told["room"] is not None:
        longest = max(path.stat().st_size for path in Path(told["settings"]["dir"]).rglob("*") if path.is_file())
        resource.setrlimit(resource.RLIMIT_FSIZE, (longest + told["room"], resource.RLIM_INFINITY))


def child(told: dict[str, Any]) -> int:
    """Serve, in the forked process."""
    failpoints.arm_failpoints(told["failpoints"])
    Log.__init__ = functools.partialmethod(Log.__init__, max_file_bytes=told["file_bytes"])  # type: ignore[assignment]
    if told["answer_first"]:
        answer_first()
    return serve(Settings(**told["settings"]), on_ready=lambda address: fill(told))


def main() -> None:
    """One launch a line; every child has been waited for before the next."""
    for name in stream_dr.ESTIMATORS:
        stream_dr.ESTIMATORS[name]
    stream_dr.warm_up([stream_dr.ESTIMATORS[name]() for name in sys.argv[1:]])
    print("ready", flush=True)
    for line in sys.stdin:
        told = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os._exit(child(told))
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
