"""Ingest: the queue of what is to be appended, and the thread that writes the log: it takes what is waiting, admits it in
order, commits it as one group, then answers.

The queue is bounded in bytes, as sent or as unpacked; past the bound `submit` refuses with Overloaded. While one group is
being committed the next one gathers, so many small posts share one fsync.

Why this way: one writer gives positions one order, and an answer is given only after the commit returned.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from stream_dr.directory.directory import Directory
from stream_dr.directory.draft import Draft, Receipt
from stream_dr.errors import Overloaded, ShuttingDown, StreamDRError, without_frames
from stream_dr.threads import thread

log = logging.getLogger("stream_dr.appender")

GROUP_EVENTS = 256
GROUP_BYTES = 32 << 20
"""A group commit ends at either."""

Waiting = tuple[Draft, "Future[Receipt]"]


class Appender:
    """directory: what is appended to. appended: called from the appender's thread after each commit with its
    receipts."""

    def __init__(self, directory: Directory, appended: Callable[[Sequence[Receipt]], None]) -> None:
        self._directory, self._appended = directory, appended
        self._waiting: deque[Waiting] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self.queued_bytes = 0
        self.figures = {"rows_appended": 0, "events_appended": 0, "commits": 0, "duplicates": 0, "refused": 0}
        self._thread = thread("appender", self._run)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Take nothing more; return when what was taken is answered."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()

    def submit(self, draft: Draft) -> "Future[Receipt]":
        """Queue a draft. Raises Overloaded or ShuttingDown."""
        future: Future[Receipt] = Future()
        size = draft.size
        with self._changed:
            if self._closed:
                raise ShuttingDown("the engine is stopping; send the batch again after the restart.")
            if self.queued_bytes and self.queued_bytes + size > self._directory.limits.max_queue_bytes:
                raise Overloaded(
                    f"{self.queued_bytes} bytes of batches wait to be written; at most "
                    f"{self._directory.limits.max_queue_bytes} may (max_queue_bytes). Try again in a second.",
                    retry_after=1,
                )
            self._waiting.append((draft, future))
            self.queued_bytes += size
            self._changed.notify_all()
        return future

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                if not self._waiting:
                    return
            self._serve_group()

    def _serve_group(self) -> None:
        with self._changed:
            group = self._take()
        self._commit([(d, f) for d, f in group if f.set_running_or_notify_cancel()])
        with self._changed:
            self.queued_bytes -= sum(d.size for d, _ in group)

    def _take(self) -> list[Waiting]:
        group: list[Waiting] = []
        size = 0
        while self._waiting and len(group) < GROUP_EVENTS and size < GROUP_BYTES:
            group.append(self._waiting.popleft())
            size += group[-1][0].size
        return group

    def _commit(self, group: list[Waiting]) -> None:
        try:
            answers: list[Receipt | StreamDRError] = self._directory.append([draft for draft, _ in group])
        except Exception as e:
            log.exception("append failed")
            error = without_frames(e)
            for _, future in group:
                future.set_exception(error)
            return
        self._count(answers)
        new = [a for a in answers if isinstance(a, Receipt) and not a.duplicate]
        if new:
            self._appended(new)
        for (_, future), answer in zip(group, answers, strict=True):
            if isinstance(answer, Receipt):
                future.set_result(answer)
            else:
                future.set_exception(answer)

    def _count(self, answers: Sequence[Receipt | StreamDRError]) -> None:
        figures = self.figures
        figures["commits"] += 1
        for answer in answers:
            if not isinstance(answer, Receipt):
                figures["refused"] += 1
            elif answer.duplicate:
                figures["duplicates"] += 1
            else:
                figures["events_appended"] += 1
                figures["rows_appended"] += answer.rows
