"""Compilation of every kernel in the background while the service starts."""

import asyncio
import functools
import logging

import stream_dr

log = logging.getLogger("stream_dr.warm_up")


class WarmUp:
    """Compilation of the kernels of all estimators.

    Attributes
    ----------
    reason : str or None
        Sentence that says why the service is not ready. None if nothing is being compiled.
    """

    def __init__(self) -> None:
        self.reason: str | None = None

    async def run(self, stopping: asyncio.Event) -> None:
        """Compile for one estimator after the other, in a thread.

        Compiling that takes longer than two seconds is logged. Once `stopping` is set, no further
        estimator is compiled for.
        """
        kinds = list(stream_dr.ESTIMATORS.values())
        for number, kind in enumerate(kinds, start=1):
            if stopping.is_set():
                break
            line = f"compiling for {kind.__name__}, {number} of {len(kinds)}: once on this machine"
            self.reason = f"The service starts, {line}."
            await asyncio.to_thread(stream_dr.warm_up, [kind()], functools.partial(_log_line, line))
        self.reason = None


def _log_line(line: str, _: str) -> None:
    log.info(line)
