"""Runs of a function in processes that are forked from one that has imported everything."""

import multiprocessing
from collections.abc import Callable
from typing import Any

from stream_dr import failpoints

SECONDS = 60.0
"""Longest time that a run may take."""


def run_forked(failpoint: str, function: Callable[..., None], *arguments: Any) -> int:
    """Run a function in a process of its own and return the exit status.

    The function must be importable. The fork server is a process without threads, so that forking it is safe; it has
    imported the product once, so that a run costs milliseconds and not the seconds of a new interpreter.

    failpoint: spec of the failpoints that are armed in the process, as of `failpoints.arm_failpoints`.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.support.preloaded"])
    process = context.Process(target=_run, args=(failpoint, function, arguments))
    process.start()
    process.join(SECONDS)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise AssertionError(f"the process was still running after {SECONDS} s")
    return process.exitcode


def _run(failpoint: str, function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    failpoints.arm_failpoints(failpoint)
    function(*arguments)
