"""Intake: every waiter gets its own batch's receipt or error, in a loop that is woken once for all of a group."""

import asyncio
import contextlib
import gc
import threading
import time
import weakref
from concurrent.futures import Future
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import stream_dr
from service.intake import AT_ONCE, KNOWN, WAY, Intake
from stream_dr.arrow.ipc import write_arrow
from stream_dr.engine.draft import Receipt

LIMITS = stream_dr.Limits()


class Log:
    """Where parsed batches are queued; `commit` answers all of them at once, as the appender does."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Any, Future[Receipt]]] = []

    def submit(self, draft: Any) -> "Future[Receipt]":
        if draft.rows == 99:
            raise stream_dr.errors.Overloaded("full", retry_after=1)
        self.waiting.append((draft, Future()))
        return self.waiting[-1][1]

    def commit(self, error: Exception | None = None) -> None:
        done, self.waiting = self.waiting, []
        for draft, future in done:
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(Receipt(draft.rows, draft.rows))


def body(rows: int) -> bytes:
    return b'{"rows": [%s]}' % b",".join([b"[1.0, 2.0]"] * rows)


def arrow_body(rows: int, width: int = 2) -> bytes:
    flat = pa.array(np.ones(rows * width))
    return write_arrow([pa.record_batch({"features": pa.FixedSizeListArray.from_arrays(flat, width)})])


async def queued(log: Log, count: int) -> None:
    async with asyncio.timeout(10):
        while len(log.waiting) < count:
            await asyncio.sleep(0.001)


def run(work: Any) -> Any:
    async def whole() -> Any:
        log = Log()
        intake = Intake(log, LIMITS)
        intake.start()
        try:
            return await work(log, intake)
        finally:
            intake.stop()

    return asyncio.run(whole())


def test_every_waiter_gets_its_own_receipt() -> None:
    async def work(log: Log, intake: Intake) -> None:
        for _ in range(20):
            tasks = [asyncio.create_task(intake.take(body(n), "json", None)) for n in range(1, 9)]
            await queued(log, 8)
            await asyncio.to_thread(log.commit)
            assert [r.position for r in await asyncio.gather(*tasks)] == list(range(1, 9))

    run(work)


def test_the_loop_is_woken_once_for_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    woken: list[Any] = []

    async def work(log: Log, intake: Intake) -> None:
        tasks = [asyncio.create_task(intake.take(body(n), "json", None)) for n in range(1, 51)]
        await queued(log, 50)
        loop = asyncio.get_running_loop()
        whole = loop.call_soon_threadsafe
        monkeypatch.setattr(loop, "call_soon_threadsafe", lambda *a: [woken.append(a[0]), whole(*a)][1])
        log.commit()  # in the loop's own thread: nothing is handed back before all are answered
        await asyncio.gather(*tasks)

    run(work)
    assert len(woken) == 1


@pytest.mark.parametrize("rows", [b"not a batch", body(99)], ids=["unreadable", "overloaded"])
def test_what_refuses_a_batch_is_raised_and_the_others_go_on(rows: bytes) -> None:
    async def work(log: Log, intake: Intake) -> None:
        refused = asyncio.create_task(intake.take(rows, "json", None))
        other = asyncio.create_task(intake.take(body(2), "json", None))
        with pytest.raises(stream_dr.errors.StreamDRError):
            await refused
        await queued(log, 1)
        await asyncio.to_thread(log.commit)
        assert (await other).rows == 2

    run(work)


def test_who_has_gone_away_is_passed_over_and_a_refused_body_is_let_go() -> None:
    class Body(bytearray):
        """Bytes that can be watched."""

    async def work(log: Log, intake: Intake) -> None:
        gone = asyncio.create_task(intake.take(body(3), "json", None))
        await queued(log, 1)
        gone.cancel()
        refused = Body(b"not a batch")  # whose error has a cause, with frames of its own
        watched = weakref.ref(refused)
        task = asyncio.create_task(intake.take(refused, "json", None))
        del refused
        gc.disable()
        try:
            with contextlib.suppress(stream_dr.errors.MalformedInput):
                await task
            assert task.done()
            del task
            async with asyncio.timeout(10):  # the thread may have to let go, too
                while watched() is not None:
                    await asyncio.sleep(0.001)
        finally:
            gc.enable()
        await asyncio.to_thread(log.commit)
        later = asyncio.create_task(intake.take(body(1), "json", None))
        await queued(log, 1)
        await asyncio.to_thread(log.commit, stream_dr.errors.InsufficientStorage("full"))
        with pytest.raises(stream_dr.errors.InsufficientStorage):
            await later

    run(work)


def test_the_loop_comes_round_between_bodies_that_are_parsed_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.intake.QUICK", 9.0)

    async def work(log: Log, intake: Intake) -> None:
        first = asyncio.create_task(intake.take(arrow_body(1), "arrow", None))
        await queued(log, 1)
        await asyncio.to_thread(log.commit)
        await first
        await asyncio.sleep(0.05)  # the thread notes what it has learned after it has queued the batch
        tasks = [asyncio.create_task(intake.take(arrow_body(n), "arrow", None)) for n in range(1, 6)]
        await asyncio.sleep(0)
        tasks[3].cancel()
        seen = []
        while len(log.waiting) < 4 and len(seen) < 50:
            await asyncio.sleep(0)
            seen.append(len(log.waiting))
        assert sorted({*seen} - {0}) == [1, 2, 3, 4]
        await asyncio.to_thread(log.commit)
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [getattr(a, "rows", None) for a in answers] == [1, 2, 3, None, 5]

    run(work)


def test_a_batch_that_nobody_waits_for_any_more_is_waited_for_before_the_end() -> None:
    async def work(log: Log, intake: Intake) -> None:
        await asyncio.wait_for(intake.settled(60), 10)  # nothing was given
        gone = [asyncio.create_task(intake.take(body(n), "json", None)) for n in (1, 2)]
        refused = asyncio.create_task(intake.take(b"not a batch", "json", None))
        await queued(log, 2)
        gone[0].cancel()
        begun = time.monotonic()
        await intake.settled(0.2)
        assert time.monotonic() - begun >= 0.2
        asyncio.get_running_loop().call_later(0.1, log.commit)
        await asyncio.wait_for(intake.settled(60), 10)
        assert refused.done()

    run(work)


def test_answers_after_the_loop_was_closed_harm_nobody() -> None:
    async def begin(log: Log) -> None:
        intake = Intake(log, LIMITS)
        intake.start()
        task = asyncio.create_task(intake.take(body(1), "json", None))
        await queued(log, 1)
        task.cancel()
        intake.stop()

    log = Log()
    asyncio.run(begin(log))
    log.commit()


class Parsed(Log):
    """Notes the thread in which each batch was queued."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[str] = []

    def submit(self, draft: Any) -> "Future[Receipt]":
        self.threads.append(threading.current_thread().name)
        return super().submit(draft)


def test_quick_bodies_of_a_known_schema_are_parsed_on_the_loop_and_others_in_the_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work() -> None:
        log = Parsed()
        intake = Intake(log, LIMITS)
        intake.start()

        async def where(given: bytes, media: str = "arrow", slow: float = 9.0) -> bool:
            """Whether it is parsed here."""
            monkeypatch.setattr("service.intake.SLOW", slow)
            monkeypatch.setattr("service.intake.QUICK", slow)
            task = asyncio.create_task(intake.take(given, media, None))
            await queued(log, 1)
            log.commit()
            await task
            await asyncio.sleep(0.01)  # the thread notes what it has learned after it has queued the batch
            return log.threads[-1] == threading.current_thread().name

        try:
            assert [await where(arrow_body(n)) for n in (2, 3, 4)] == [False, True, True]
            assert [await where(body(n), "json") for n in (2, 3)] == [False, True]
            assert [await where(body(9_000), "json"), await where(arrow_body(60_000, 5))] == [False, False]
            assert [await where(arrow_body(2, 7), slow=-1.0), await where(arrow_body(2, 7))] == [False, False]
            assert await where(arrow_body(2, 7))
            intake.give_way()
            assert time.monotonic() < intake._here_from <= time.monotonic() + WAY
            assert not await where(arrow_body(2))
            monkeypatch.setattr(intake, "_here_from", 0.0)
            assert await where(arrow_body(2), slow=-1.0)
            assert time.monotonic() + WAY < intake._here_from
            assert not await where(arrow_body(2), slow=-1.0)
            monkeypatch.setattr(intake, "_here_from", 0.0)
            assert not await where(arrow_body(2))
            assert await where(arrow_body(2))
            for width in range(10, 10 + KNOWN):
                await where(arrow_body(1, width))
            assert 0 < len(intake._quick) <= KNOWN
        finally:
            intake.stop()

    assert len(body(9_000)) > AT_ONCE["json"]
    assert len(arrow_body(60_000, 5)) > AT_ONCE["arrow"]
    asyncio.run(work())
