"""Listeners: who is told what happens, from engine threads, as JSON-able dicts.

Why this way: the engine does not know a dashboard or an event stream; a listener that raises disturbs no one.
"""

import logging
from collections.abc import Callable
from typing import Any

from stream_dr.engine.model import Model, Published

log = logging.getLogger("stream_dr.listeners")

Callback = Callable[[dict[str, Any]], None]


class Listeners:
    """Callbacks, told in the order they were added."""

    def __init__(self) -> None:
        self._callbacks: list[Callback] = []

    def add(self, callback: Callback) -> Callable[[], None]:
        """Tell this one too; gives a function that ends it."""
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    def tell(self, event: str, **facts: Any) -> None:
        """Tell all: {"event": event, …}."""
        for callback in list(self._callbacks):
            try:
                callback({"event": event, **facts})
            except Exception:
                log.exception("a listener failed")

    def tell_published(self, model: Model, published: Published) -> None:
        """A model has a new projection."""
        self.tell("published", model=model.name, version=published.version, position=published.position)
