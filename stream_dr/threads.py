"""Threads: all that the engine runs, by name, in one place.

    stream_dr-appender    one    admits what is waiting and commits it as a group                  (running/ingest.py)
    stream_dr-models      one    reads the log, advances the live models, says what is due         (running/model_thread.py)
    stream_dr-advance     many   models side by side, as many as there are processors              (running/advance.py)
    stream_dr-work        few    solving, publishing, snapshots: RunSettings.workers               (running/driver.py)
    stream_dr-long        few    catching up and refining: twice as many                           (running/running.py)
    stream_dr-ahead       one    for each pass over shards or the log: what is read ahead of it    (here)
    stream_dr-look-ahead  one    for each replay: the next shard's digest and missing batches      (directory/references.py)

Each waits for a future, a condition or a deadline it has computed; none polls.
"""

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import TypeVar

T = TypeVar("T")

SWITCH_INTERVAL = 2e-4
"""Seconds a thread may hold the interpreter while another waits. With Python's own, learning waits behind reading after
each kernel."""

_END = object()


def thread(name: str, run: Callable[[], None]) -> threading.Thread:
    """A thread of the engine, not started yet."""
    return threading.Thread(target=run, name=f"stream_dr-{name}", daemon=True)


def pool(name: str, threads: int | None = None) -> ThreadPoolExecutor:
    """A pool of so many threads; None: as many as there are processors."""
    return ThreadPoolExecutor(threads or len(os.sched_getaffinity(0)), thread_name_prefix=f"stream_dr-{name}")


def ahead(items: Generator[T, None, None], depth: int = 2) -> Generator[T, None, None]:
    """The same items, made by a thread that is at most `depth` of them ahead. Its error is raised here, in its place;
    closing this closes them."""
    with closing(items), pool("ahead", 1) as maker:
        made = deque(maker.submit(next, items, _END) for _ in range(depth))
        try:
            while (item := made.popleft().result()) is not _END:
                made.append(maker.submit(next, items, _END))
                yield item  # type: ignore[misc]
        finally:
            for future in made:
                future.cancel()


@contextmanager
def switching() -> Iterator[None]:
    """SWITCH_INTERVAL for a while; a shorter one stays."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(SWITCH_INTERVAL, before))
    try:
        yield
    finally:
        sys.setswitchinterval(before)
