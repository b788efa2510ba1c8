"""Jobs: long work in the background (refine, snapshot) with progress and cancel."""

import threading
from typing import Any


class Job:
    """One piece of long work.

    id, kind ("refine", "snapshot"), model, state ("waiting", "running", "done", "failed", "cancelled"), progress (JSON-able
    dict, replaced as a whole), error ({"code", "message"} or None).
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
