"""Ingest: from bodies to receipts. A body waits for the one thread that parses, then for the log; who sent it awaits its
receipt, which is a promise that survives a kill.

What waits is bounded in bytes: a body counts as held (body_limits.py) until it is answered, and the log's own queue refuses
parsed batches past the same setting. Batches are learned one after the other, so one thread that parses is enough, and the
event loop is free to answer queries meanwhile.
"""

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor

import stream_dr


class Ingest:
    """running: where parsed batches are queued. limits: what a batch may be. parsing: a pool of one thread."""

    def __init__(self, running: stream_dr.Running, limits: stream_dr.Limits, parsing: ThreadPoolExecutor) -> None:
        self._running, self._limits, self._parsing = running, limits, parsing

    async def take(self, body: bytes, media: str, key: str | None) -> stream_dr.Receipt:
        """The receipt of a batch, once it is durable. Raises what refuses it."""
        loop = asyncio.get_running_loop()
        return await asyncio.wrap_future(await loop.run_in_executor(self._parsing, self._submit, body, media, key))

    async def check(self, body: bytes, media: str, key: str | None) -> tuple[int, bool]:
        """The rows of a batch that would be taken, and whether it repeats an earlier one; nothing is appended. Raises what
        refuses it."""
        return await asyncio.get_running_loop().run_in_executor(self._parsing, self._check, body, media, key)

    def _submit(self, body: bytes, media: str, key: str | None) -> "Future[stream_dr.Receipt]":
        try:
            return self._running.submit(stream_dr.rows_draft(body, media, key, self._limits))
        except stream_dr.errors.StreamDRError as e:
            raise stream_dr.errors.without_frames(e) from None  # its frames hold the body

    def _check(self, body: bytes, media: str, key: str | None) -> tuple[int, bool]:
        draft = stream_dr.rows_draft(body, media, key, self._limits)
        return draft.rows, self._running.check(draft)
