"""Mutated Arrow streams and JSON bodies against the codec: each is either read or refused with one of our errors.

    python -m tests.campaigns.fuzz_codec [--runs 20000] [--seed S] [--resume FILE] [--keep DIR]
    python -m tests.campaigns.fuzz_codec BODY…          what becomes of these files

Body N of a seed is the same in every run, and FILE says which ones were tried, so that a long run is done in parts. Parsers
are forked and bounded in memory and time, so that a crash is counted, and the next parser goes on with the next body. Prints
how many bodies came to what, and the most memory and time that one took; bodies that did harm are kept in DIR. Exits 1 where
there are any: a crash, an error that is not one of ours, more memory (64 times its bytes and 64 MB) or time than is allowed,
or a Block that is not sound.
"""

import argparse
import os
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np
import scipy.sparse as sp

from stream_dr.arrow.codec import block_from_arrow, block_from_json, read_arrow
from stream_dr.errors import StreamDRError
from stream_dr.rows.block import check_finite
from tests.campaigns import record
from tests.campaigns.memory import allowed, largest
from tests.campaigns.mutated_bodies import bases, body

LIMIT = 16 << 20
"""What a body may unpack to, in bytes."""

MEMORY = 512 << 20
"""Bytes that a parser may take beyond what it had when it began."""

SECONDS = 10
"""How long one body may take."""

PART = 10_000
"""Bodies between two lines of the record."""

HARM = ("crash", "wrong", "memory", "slow", "greedy")


class Report(NamedTuple):
    """What became of body `number`: the outcome, seconds, and bytes by which the parser's largest size grew."""

    number: int
    outcome: str
    seconds: float
    grown: int


def outcome(data: bytes) -> str:
    """ "read", the code of the error that refused it, or "wrong: …"."""
    try:
        if data[:1] in (b"{", b"["):
            block = block_from_json(data, max_features=1_000_000)
        else:
            block = block_from_arrow(read_arrow(data, LIMIT), max_features=1_000_000)
        check_finite(block.X)
    except StreamDRError as e:
        return e.code if len(str(e)) < 10_000 else "wrong: an error of 10,000 letters"
    except MemoryError:
        return "memory"
    except Exception as e:
        return f"wrong: {type(e).__name__}: {e}"[:300]
    if block.sparse:
        fresh = sp.csr_matrix((block.X.data, block.X.indices, block.X.indptr), shape=block.X.shape)
        if not fresh.has_canonical_format:
            return "wrong: indices are not sorted and distinct"
    for name in ("y", "weights", "ids"):
        part = getattr(block, name)
        if part is not None and (part.rows if name == "y" else len(part)) != block.rows:
            return f"wrong: {name} of another number of rows"
    return "read"


Judge = Callable[[int, bytes], str]
"""The outcome of body `number`."""


def run(
    make: Callable[[int], bytes], start: int, stop: int, judge: Judge = lambda number, data: outcome(data)
) -> Iterator[Report]:
    """What becomes of the bodies start … stop − 1, each in a parser that may end with it."""
    while start < stop:
        reading, writing = os.pipe()
        parser = os.fork()
        if not parser:
            os.close(reading)
            _parse(make, start, stop, writing, judge)
            os._exit(0)
        os.close(writing)
        began = time.monotonic()
        with open(reading, encoding="utf8") as lines:
            for line in lines:
                number, seconds, grown, told = line.rstrip("\n").split(" ", 3)
                yield Report(int(number), told, float(seconds), int(grown))
                start, began = int(number) + 1, time.monotonic()
        status = os.waitstatus_to_exitcode(os.waitpid(parser, 0)[1])
        if start < stop and status:
            told = "slow" if status == -signal.SIGALRM else f"crash: ended with {status}"
            yield Report(start, told, time.monotonic() - began, 0)
            start += 1


def _parse(make: Callable[[int], bytes], start: int, stop: int, writing: int, judge: Judge) -> None:
    """Write down what becomes of each body; end after one that took much, for the next to be measured alone."""
    with open("/proc/self/statm", encoding="ascii") as file:
        most = int(file.read().split()[0]) * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    for number in range(start, stop):
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
    """Whether an outcome is one that must not be."""
    return told.startswith(HARM)


def tried(
    make: Callable[[int], bytes],
    start: int,
    stop: int,
    keep: Path | None,
    judge: Judge = lambda number, data: outcome(data),
) -> Counter[str]:
    """What became of the bodies start … stop − 1, counted; one that did harm is named, and kept where `keep` is given."""
    counts: Counter[str] = Counter()
    for report in run(make, start, stop, judge):
        counts[report.outcome.split(":")[0]] += 1
        counts["most seconds"] = max(counts["most seconds"], report.seconds)
        counts["most bytes"] = max(counts["most bytes"], report.grown)
        if harmful(report.outcome):
            print(f"body {report.number}: {report.outcome}", flush=True)
            if keep is not None:
                keep.mkdir(parents=True, exist_ok=True)
                (keep / str(report.number)).write_bytes(make(report.number))
    return counts


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("bodies", nargs="*", type=Path)
    options = record.options(parser, runs=20_000)
    done = record.Record(options)
    whole = bases(np.random.default_rng(done.seed))
    for data in whole:
        told = outcome(data)  # compiles what is compiled, once for all parsers
        if told != "read":
            sys.exit(f"a base is not read: {told}")
    if options.bodies:
        for report in run(lambda number: options.bodies[number].read_bytes(), 0, len(options.bodies)):
            print(f"{options.bodies[report.number]}: {report.outcome}")
            done.counts[report.outcome.split(":")[0]] += 1
    else:
        make: Callable[[int], bytes] = lambda number: body(whole, done.seed, number)  # noqa: E731
        while done.done < done.runs:
            stop = min(done.done + PART, done.runs)
            done.add(stop, tried(make, done.done, stop, options.keep))
    end(done)


def end(done: record.Record) -> NoReturn:
    """Print what the run did, and exit with 1 if a body did harm."""
    print(done.told())
    harm = sum(done.counts[outcome] for outcome in HARM)
    print(f"{harm} did harm")
    sys.exit(1 if harm else 0)


if __name__ == "__main__":
    main()
