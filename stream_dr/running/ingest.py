"""Ingest: the queue and thread that append to the log.

The queue has drafts (events to append). The thread takes a group of drafts from the queue, up to
GROUP_EVENTS drafts or GROUP_BYTES bytes. It checks them in order and commits them to the log in
one transaction (a group commit). Then it completes the futures of their callers. New drafts wait
in the queue during a commit, so many small drafts share the waits for the disk. The queue is
bounded in bytes.

While a Running runs, only this thread appends to the log, so the events have one order.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from stream_dr.directory.directory import Directory
from stream_dr.directory.draft import Draft, Receipt
from stream_dr.errors import Overloaded, ShuttingDown, StreamDRError, remove_stack_frames
from stream_dr.threads import new_engine_thread

log = logging.getLogger("stream_dr.appender")

GROUP_EVENTS = 256
"""Maximum number of events in a group commit."""

GROUP_BYTES = 32 << 20
"""Number of bytes at which no further event is added to a group commit."""

QueuedDraft = tuple[Draft, "Future[Receipt]"]
"""Draft that waits in the queue, and the future that its caller holds."""


class Appender:
    """Thread that appends drafts to a directory's log.

    A draft is an event without a position.

    on_appended: called in the appender thread after each commit, with the receipts of the new
        events.
    """

    def __init__(self, directory: Directory, on_appended: Callable[[Sequence[Receipt]], None]) -> None:
        self._directory = directory
        self._on_appended = on_appended
        self._queue: deque[QueuedDraft] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self.queued_bytes = 0
        self.figures = {"rows_appended": 0, "events_appended": 0, "commits": 0, "duplicates": 0, "refused": 0}
        self._thread = new_engine_thread("appender", self._run)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Refuse new drafts, and wait until the thread has ended.

        The drafts in the queue are appended or refused first.
        """
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()

    def submit(self, draft: Draft) -> "Future[Receipt]":
        """Queue a draft, and return the future of its Receipt.

        Raises Overloaded if the queue is full. Raises ShuttingDown after `close`.
        """
        future: Future[Receipt] = Future()
        size = draft.size

        # A draft of any size is queued if the queue is empty.
        with self._changed:
            if self._closed:
                raise ShuttingDown("the engine is stopping; send the batch again after the restart.")
            if self.queued_bytes and self.queued_bytes + size > self._directory.limits.max_queue_bytes:
                raise Overloaded(
                    f"{self.queued_bytes} bytes of batches wait to be written; at most "
                    f"{self._directory.limits.max_queue_bytes} may (max_queue_bytes). Try again in a second.",
                    retry_after=1,
                )
            self._queue.append((draft, future))
            self.queued_bytes += size
            self._changed.notify_all()

        return future

    def _run(self) -> None:
        while True:
            # Take the drafts of the next commit from the queue.
            group: list[QueuedDraft] = []
            size = 0
            with self._changed:
                while not self._queue and not self._closed:
                    self._changed.wait()
                if not self._queue:
                    return
                while self._queue and len(group) < GROUP_EVENTS and size < GROUP_BYTES:
                    group.append(self._queue.popleft())
                    size += group[-1][0].size

            # Drop each draft whose caller has cancelled the future.
            self._append_and_complete([(d, f) for d, f in group if f.set_running_or_notify_cancel()])
            with self._changed:
                self.queued_bytes -= size

    def _append_and_complete(self, group: list[QueuedDraft]) -> None:
        """Append a group of drafts in one commit.

        The future of each draft is completed.
        """
        # If the commit fails, every caller gets the error.
        try:
            answers: list[Receipt | StreamDRError] = self._directory.append([draft for draft, _ in group])
        except Exception as e:
            log.exception("append failed")
            # The frames of the error's traceback would hold the drafts' rows in memory.
            error = remove_stack_frames(e)
            for _, future in group:
                future.set_exception(error)
            return

        # Report the new events before their callers get an answer.
        new = []
        for answer in answers:
            if not isinstance(answer, Receipt):
                self.figures["refused"] += 1
            elif answer.duplicate:
                self.figures["duplicates"] += 1
            else:
                self.figures["events_appended"] += 1
                self.figures["rows_appended"] += answer.rows
                new.append(answer)
        if new:
            self.figures["commits"] += 1
            self._on_appended(new)

        for (_, future), answer in zip(group, answers, strict=True):
            if isinstance(answer, Receipt):
                future.set_result(answer)
            else:
                future.set_exception(answer)
