"""Reading: the log's events as Steps, a page at a time, decoded ahead of the models that learn them.

Pages are short reads: no cursor stays open on the log. `ahead` runs any iterator in a thread of its own, so that
reading shards and decoding overlaps with computing.

Why this way: replay, catch-up and the model thread read the log through the same few lines.
"""

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from stream_dr.engine.advance import Step
from stream_dr.engine.decode import Decoder, check_intact
from stream_dr.engine.schema import Schema
from stream_dr.engine.unlearn import removal_of
from stream_dr.errors import DamagedFile

PAGE = 64
"""Events read from the log at once."""

T = TypeVar("T")


def pages(log: Any, schema: Schema, after: int, until: int, decoder: Decoder) -> Iterator[list[Step]]:
    """Steps of the events with after < position ≤ until, a page at a time. Raises SourceMissing, DamagedShard."""
    while after < until:
        steps = read_steps(log, schema, after, until, decoder, PAGE)
        if not steps:
            return
        yield steps
        after = steps[-1].position


def read_steps(
    log: Any, schema: Schema, after: int, until: int, decoder: Decoder, limit: int, max_bytes: int = 64 << 20
) -> list[Step]:
    """The next events as Steps, at most `limit`, and none past `max_bytes` of bodies or of rows; one that is damaged in
    the log is a Step with the error."""
    try:
        return _steps(log.read(after, until, limit, max_bytes), schema, decoder, max_bytes)
    except DamagedFile as e:
        if limit > 1:  # which of them it is, one by one
            return read_steps(log, schema, after, until, decoder, 1)
        return [Step(after + 1, error=e)]


def _steps(events: Iterable[Any], schema: Schema, decoder: Decoder, max_bytes: int) -> list[Step]:
    """The events decoded, up to the first that makes them more than `max_bytes`: what is compressed or in shards unpacks."""
    steps: list[Step] = []
    left = max_bytes
    for event in events:
        steps.append(step(event, schema, decoder))
        left -= steps[-1].block.nbytes if steps[-1].block is not None else 0
        if left <= 0:
            break
    return steps


def step(event: Any, schema: Schema, decoder: Decoder) -> Step:
    """An event of the log, decoded; one that cannot be is a Step with the error, which fails the models that need
    it."""
    try:
        if event.kind == "unlearn":
            check_intact(event)
            return Step(event.position, removal=removal_of(event.body))
        if not event.body:  # all its rows were unlearned and forgotten
            return Step(event.position)
        return Step(event.position, decoder.block(event, schema))
    except Exception as e:
        return Step(event.position, error=e)


def ahead(items: Iterator[T], depth: int = 2) -> Iterator[T]:
    """The same items, made by a thread that is at most `depth` items ahead. Its error is raised here, in its place."""
    ready: queue.Queue[Any] = queue.Queue(depth)
    stopped = threading.Event()
    end = object()
    thread = threading.Thread(target=_fill, args=(items, ready, stopped, end), name="stream_dr-read", daemon=True)
    thread.start()
    try:
        while True:
            item, error = ready.get()
            if error is not None:
                raise error
            if item is end:
                return
            yield item
    finally:
        stopped.set()
        while thread.is_alive():
            _drain(ready)
            thread.join(0.01)


def _fill(items: Iterator[Any], ready: "queue.Queue[Any]", stopped: threading.Event, end: object) -> None:
    try:
        for item in items:
            ready.put((item, None))
            if stopped.is_set():
                return
        ready.put((end, None))
    except BaseException as e:
        ready.put((None, e))
    finally:
        if hasattr(items, "close"):
            items.close()


def _drain(ready: "queue.Queue[Any]") -> None:
    while True:
        try:
            ready.get_nowait()
        except queue.Empty:
            return
