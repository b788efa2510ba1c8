"""Runs of many bodies through a judge, in forked processes that are bounded in memory and time.

    judge = lambda number, data: …                     # "read", or what became of the body
    try_all(done, make, judge, keep=None)              # done: a record.Record

A crash is therefore counted, and the next process continues with the next body.
"""

import os
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

from tests.support.memory import allowed, largest
from tests.support.record import Record

MEMORY = 512 << 20
"""Bytes that a process may take in addition to what it had at its start."""

SECONDS = 10
"""Seconds that one body may take."""

PART = 10_000
"""Bodies between two lines of the record."""

HARM = ("crash", "wrong", "memory", "slow", "greedy")


class Report(NamedTuple):
    """What became of one body.

    number: of the body.
    outcome: word of the judge, and details after a colon.
    seconds: wall time.
    grown: bytes by which the largest size of the process grew.
    """

    number: int
    outcome: str
    seconds: float
    grown: int


Make = Callable[[int], bytes]
"""Returns the body of a number."""

Judge = Callable[[int, bytes], str]
"""Returns the outcome of a body and its number."""


def run(make: Make, judge: Judge, start: int, stop: int) -> Iterator[Report]:
    """Yield what becomes of the bodies start … stop − 1. A body may end the process that judges it."""
    while start < stop:
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            _judge(make, judge, range(start, stop), writing)
            os._exit(0)
        os.close(writing)
        began = time.monotonic()
        with open(reading, encoding="utf8") as lines:
            for line in lines:
                number, seconds, grown, told = line.rstrip("\n").split(" ", 3)
                yield Report(int(number), told, float(seconds), int(grown))
                start, began = int(number) + 1, time.monotonic()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if start < stop and status:
            told = "slow" if status == -signal.SIGALRM else f"crash: ended with {status}"
            yield Report(start, told, time.monotonic() - began, 0)
            start += 1


def _judge(make: Make, judge: Judge, numbers: range, writing: int) -> None:
    """Write what becomes of each body.

    Return after a body that took much memory, so that the next one is measured alone.
    """
    with open("/proc/self/statm", encoding="ascii") as file:
        most = int(file.read().split()[0]) * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    for number in numbers:
        data = make(number)
        before, began = largest(), time.monotonic()
        signal.alarm(SECONDS)
        told = judge(number, data)
        signal.alarm(0)
        seconds, grown = time.monotonic() - began, largest() - before
        if grown > allowed(len(data)):
            told = f"greedy: {len(data)} bytes took {grown} ({told})"
        os.write(writing, f"{number} {seconds:.3f} {grown} {told}\n".replace("\n", " ", told.count("\n")).encode())
        if grown > 1 << 24:
            return


def harmful(told: str) -> bool:
    """Return True if an outcome must not occur."""
    return told.startswith(HARM)


def tried(make: Make, judge: Judge, start: int, stop: int, keep: Path | None) -> Counter[str]:
    """Count what became of the bodies start … stop − 1.

    A body that did harm is named, and stored in the folder `keep`.
    """
    counts: Counter[str] = Counter()
    for report in run(make, judge, start, stop):
        counts[report.outcome.split(":")[0]] += 1
        counts["most seconds"] = max(counts["most seconds"], report.seconds)
        counts["most bytes"] = max(counts["most bytes"], report.grown)
        if harmful(report.outcome):
            print(f"body {report.number}: {report.outcome}", flush=True)
            if keep is not None:
                keep.mkdir(parents=True, exist_ok=True)
                (keep / str(report.number)).write_bytes(make(report.number))
    return counts


def try_all(done: Record, make: Make, judge: Judge, keep: Path | None) -> NoReturn:
    """Try the bodies that the record lacks, print the counts, and exit with 1 if a body did harm."""
    while done.done < done.runs:
        stop = min(done.done + PART, done.runs)
        done.add(stop, tried(make, judge, done.done, stop, keep))
    end(done)


def end(done: Record) -> NoReturn:
    """Print what the run did, and exit with 1 if a body did harm."""
    print(done.told())
    harm = sum(done.counts[outcome] for outcome in HARM)
    print(f"{harm} did harm")
    sys.exit(1 if harm else 0)
