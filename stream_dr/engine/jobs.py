"""Jobs: long work in the background (refine, snapshot) with progress and cancel."""

import logging
import threading
from collections.abc import Callable
from typing import Any

from stream_dr.errors import StreamDRError

log = logging.getLogger("stream_dr.jobs")


class Job:
    """One piece of long work.

    id, kind ("refine", "snapshot"), model, state ("waiting", "running", "done", "failed", "cancelled"), progress
    (JSON-able dict, replaced as a whole), error ({"code", "message"} or None).
    """

    def __init__(self, id: str, kind: str, model: str) -> None:
        self.id, self.kind, self.model = id, kind, model
        self.state = "waiting"
        self.progress: dict[str, Any] = {}
        self.error: dict[str, str] | None = None
        self._cancel = threading.Event()
        self._ended = threading.Event()

    @property
    def cancelled(self) -> bool:
        """Whether it was asked to stop."""
        return self._cancel.is_set()

    def cancel(self) -> None:
        """Ask it to stop at its next safe point; an ended job stays what it is."""
        self._cancel.set()

    def run(self, work: Callable[[], None]) -> None:
        """Do the work in this thread; its end, error or cancellation becomes the job's state."""
        self.state = "running"
        try:
            if not self.cancelled:
                work()
            self.state = "cancelled" if self.cancelled else "done"
        except StreamDRError as e:
            self.state, self.error = "failed", {"code": e.code, "message": str(e)}
        except Exception as e:
            log.exception("job %s (%s of %s) failed", self.id, self.kind, self.model)
            self.state, self.error = "failed", {"code": "internal", "message": type(e).__name__}
        finally:
            self._ended.set()

    def tell(self, facts: dict[str, Any]) -> None:
        """How far it is."""
        self.progress = {**self.progress, **facts}

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for its end; False when the timeout came first."""
        return self._ended.wait(timeout)

    def describe(self) -> dict[str, Any]:
        """All that is told about it, JSON-able."""
        return {
            "id": self.id,
            "kind": self.kind,
            "model": self.model,
            "state": self.state,
            "progress": self.progress,
            "error": self.error,
        }
