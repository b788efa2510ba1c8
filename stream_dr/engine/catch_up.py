"""Catch up: models read the log from where each is, in one pass, up to a fixed position.

Models that stand at different positions go through together; each skips what it has applied. Reading and decoding run a
page ahead in a thread of their own; the models run side by side in the pool.

Why this way: a restart, a model added later and the resumption of a killed replay are the same thing.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any

from stream_dr.engine.advance import Step, advance_all
from stream_dr.engine.decode import Decoder
from stream_dr.engine.history import LogHistory
from stream_dr.engine.model import Model
from stream_dr.engine.reading import ahead, pages
from stream_dr.errors import HistoryGone


def catch_up(
    directory: Any,
    models: Sequence[Model],
    until: int,
    pool: Executor | None = None,
    after_page: Callable[[list[Step]], bool | None] | None = None,
) -> None:
    """Apply the log's events up to `until` to each model that is behind.

    after_page: called when all models have applied a page; a true answer ends the pass early. Raises HistoryGone when a
    model needs events that are no longer kept. A model that cannot apply an event, or whose shard cannot be read, is
    failed.
    """
    behind = [m for m in models if m.status != "failed" and m.position < until]
    if not behind:
        return
    start = min(m.position for m in behind)
    if start + 1 < directory.log.first:
        raise HistoryGone(f"events before position {directory.log.first} are no longer kept; {start + 1} is needed.")
    history = LogHistory(directory)
    reading = ahead(pages(directory.log, directory.schema, start, until, Decoder(directory.limits, directory.path)))
    try:
        for steps in reading:
            advance_all(behind, steps, history, pool)
            if after_page is not None and after_page(steps):
                return
    finally:
        reading.close()  # type: ignore[attr-defined]
