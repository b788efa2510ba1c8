"""Threads: names of all threads that the service's engine runs.

| thread | number | work | module |
|---|---|---|---|
| `stream_dr-appender` | one | commits waiting batches to the log in groups | running/ingest.py |
| `stream_dr-models` | one | reads the log, advances live models | running/model_thread.py |
| `stream_dr-advance` | one a processor | advance models in parallel | running/advance.py |
| `stream_dr-work` | `RunSettings.workers` | solve, publish, snapshot | running/driver.py |
| `stream_dr-long` | twice `RunSettings.workers` | catch up, rebuild, refine | running/running.py |
| `stream_dr-records` | one | writes the history of the models | directory/records.py |
| `stream_dr-ahead` | one a pass | reads shards or the log ahead | threads.py |
| `stream_dr-look-ahead` | one a replay | looks up missing batches | directory/references.py |

Each thread waits for a future, a condition or a deadline that it has computed. No thread polls.
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
"""Seconds for which a thread may hold the interpreter while another thread waits.

With Python's default, the thread that learns would wait too long for threads that read.
"""

_END = object()
"""Result that stands for the end of the items."""


def new_engine_thread(name_ending: str, run: Callable[[], None]) -> threading.Thread:
    """Return a new thread of the engine, not started yet.

    name_ending: last part of the thread's name.
    run: function that the thread calls.
    """
    return threading.Thread(target=run, name=f"stream_dr-{name_ending}", daemon=True)


def count_processors() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # macOS, Windows


def new_thread_pool(name: str, n_threads: int | None = None) -> ThreadPoolExecutor:
    """Return a pool of threads of the service's engine.

    name: last part of the threads' names, before their numbers.
    n_threads: number of threads. None means one for each processor.
    """
    return ThreadPoolExecutor(n_threads or count_processors(), thread_name_prefix=f"stream_dr-{name}")


def compute_ahead(items: Generator[T, None, None], max_items_ahead: int = 2) -> Generator[T, None, None]:
    """Yield items of a generator that a thread computes ahead.

    items: the generator.
    max_items_ahead: maximum number of items that are computed ahead.

    If computing an item raises an error, the error is raised when that item is requested. Closing
    this generator closes `items`.
    """
    with closing(items), new_thread_pool("ahead", 1) as executor:
        futures = deque(executor.submit(next, items, _END) for _ in range(max_items_ahead))
        try:
            while (item := futures.popleft().result()) is not _END:
                futures.append(executor.submit(next, items, _END))
                yield item  # type: ignore[misc]
        finally:
            for future in futures:
                future.cancel()


@contextmanager
def shorter_switch_interval() -> Iterator[None]:
    """Set Python's thread switch interval to SWITCH_INTERVAL in the with-block.

    A shorter interval is left as it is.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(SWITCH_INTERVAL, before))
    try:
        yield
    finally:
        sys.setswitchinterval(before)
