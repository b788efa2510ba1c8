"""Serve: the process around the application; `stream-dr serve` and `python -m service` both call it.

Before anything listens: the address must be loopback or guarded by a token, the process must be the only worker, the
port must be free, the directory must not be in use. On SIGTERM or SIGINT: no new connections, requests under way end,
batches taken are appended and learned, every model is snapshotted, exit 0. A second signal does not wait for requests.

The service answers before it is ready: /readyz is 503 while kernels are compiled.

One writing process per directory, so one uvicorn server in one process.
"""

import asyncio
import gc
import logging
import math
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import uvicorn
import uvloop
from fastapi import FastAPI
from pydantic import ValidationError

import stream_dr
from service import auth
from service.settings import Settings

log = logging.getLogger("stream_dr.serve")

FILES = 256
"""Files kept free for what is no connection."""


def serve(
    settings: Settings | None = None,
    on_ready: Callable[[str], None] | None = None,
    prepare: Callable[[stream_dr.Directory], None] = lambda directory: None,
    **overrides: Any,
) -> int:
    """Serve `settings.dir` until a signal; the process's exit status.

    overrides: settings by name, over environment and file. on_ready: called with the address once it answers. prepare: given
    the directory before, to make models. Raises
    ValueError (an address others can reach without a token, more than one worker), OSError (port taken), DirectoryInUse.
    """
    settings = settings or Settings(**{k: v for k, v in overrides.items() if v is not None})
    auth.check_host(settings)
    check_one_worker()
    raise_file_limit(settings)
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    listening = listen(settings)
    try:
        with _one_blas_thread(), open_directory(settings) as directory:
            prepare(directory)
            return _run(settings, directory, listening, on_ready)
    finally:
        listening.close()


def main(**overrides: Any) -> int:
    """`serve` as a command: what keeps it from serving is told on stderr with its code. Exit status 0, 1 or serve's."""
    try:
        return serve(**overrides)
    except ValidationError as e:
        wrong = "; ".join(f"{'.'.join(map(str, w['loc'])) or 'settings'}: {w['msg']}" for w in e.errors())
        return _refuse("settings", f"{wrong} (docs/settings.md)")
    except (ValueError, OSError) as e:
        return _refuse(getattr(e, "code", "settings" if isinstance(e, ValueError) else "io"), str(e))


def _refuse(code: str, message: str) -> int:
    print(f"error ({code}): {message}", file=sys.stderr, flush=True)
    return 1


def check_one_worker() -> None:
    """Raise ValueError where WEB_CONCURRENCY asks for more processes."""
    workers = os.environ.get("WEB_CONCURRENCY", "1")
    if workers != "1":
        raise ValueError(
            f"WEB_CONCURRENCY is {workers}: a directory has one writing process. Unset it; queries scale out with read "
            "replicas, not with workers."
        )


def raise_file_limit(settings: Settings) -> None:
    """Let this process open as many files as the system grants it. Raises ValueError where connections could use all: the
    log opens files as it needs them, and finds the FILES that connections never take."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = settings.max_connections + FILES
    if resource.RLIM_INFINITY != hard < needed:
        raise ValueError(
            f"the system lets this process open {hard} files (ulimit -Hn); max_connections = {settings.max_connections} and "
            f"{FILES} for the log, the models and their shards make {needed}. Allow more, or set max_connections lower."
        )
    if soft != hard:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (max(soft, needed) if hard == resource.RLIM_INFINITY else hard, hard)
        )


class Serving:
    """uvicorn over the application, ended in good order by a signal: the process goes on to exit 0, where uvicorn would
    raise a signal that it took itself again after its shutdown.

    ready: called, on the event loop, once every kernel is compiled.
    """

    def __init__(self, app: FastAPI, settings: Settings, ready: Callable[[], None]) -> None:
        self._settings, self._shared, self._ready = settings, app.state.shared, ready
        self._server = uvicorn.Server(_configuration(app, settings))
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def started(self) -> bool:
        """Whether it has answered."""
        return self._server.started

    def run(self, listening: socket.socket) -> None:
        """Serve until a signal, or `stop`. Raises what compiling raises."""
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve(listening))

    def stop(self) -> None:
        """Stop, from any thread; the second time without waiting for requests, which are ended as they are when
        stop_timeout is over."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop)

    async def _serve(self, listening: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        serving = asyncio.ensure_future(self._server.serve(sockets=[listening]))
        await asyncio.sleep(0)  # now uvicorn has taken the signals
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._loop.add_signal_handler(number, self._stop)
        beginning = asyncio.create_task(self._begin())
        try:
            await serving
        finally:
            if not self._server.started:  # the application could not start
                beginning.cancel()
        if self._server.started:
            await beginning

    def _stop(self) -> None:
        again, self._server.should_exit = self._server.should_exit, True
        if not again:
            self._shared.stopping.set()
            return
        for task in self._server.server_state.tasks:
            task.cancel()

    async def _begin(self) -> None:
        """Compile what is to be compiled, while requests are answered already."""
        while not self._server.started:
            await asyncio.sleep(0.01)
        try:
            if self._settings.warm_up:
                await self._shared.warm_up.run(self._shared.stopping)
            if not self._shared.stopping.is_set():
                self._ready()
        except BaseException:
            self._stop()
            raise


def _configuration(app: FastAPI, settings: Settings) -> uvicorn.Config:
    """uvicorn's configuration, as the settings have it."""
    return uvicorn.Config(
        app,
        http="h11",  # which bounds heads
        h11_max_incomplete_event_size=settings.max_head_bytes,
        ws="none",
        log_config=None,
        log_level=settings.log_level,
        access_log=settings.log_level == "debug",
        server_header=False,
        lifespan="on",
        limit_concurrency=settings.max_connections + 1,  # uvicorn refuses at as many
        timeout_graceful_shutdown=math.ceil(settings.stop_timeout),
        workers=1,
    )


def _run(
    settings: Settings,
    directory: stream_dr.Directory,
    listening: socket.socket,
    on_ready: Callable[[str], None] | None,
) -> int:
    from service.app import create_app

    app = create_app(directory, settings)
    app.openapi()  # FastAPI makes the routes at their first use, while it changes warnings for all threads: not under load
    gc.collect()
    gc.freeze()  # what start-up made stays: a full collection over it would hold up every request
    host, port = listening.getsockname()[:2]
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    ready = (
        (lambda: on_ready(address)) if on_ready else (lambda: print(f"serving {address}", file=sys.stderr, flush=True))
    )
    tell_passed_over(settings, directory)
    serving = Serving(app, settings, ready)
    serving.run(listening)
    if not serving.started:
        return 3
    return 0 if app.state.drained else 1


def open_directory(settings: Settings) -> stream_dr.Directory:
    """The directory that the settings name, writable. Raises DirectoryInUse."""
    from service.app import limits

    return stream_dr.Directory(
        settings.dir,
        limits=limits(settings),
        n_features=settings.n_features,
        target_kind=settings.target_kind,
        allowed_labels=settings.allowed_labels,
    )


def tell_passed_over(settings: Settings, directory: stream_dr.Directory) -> None:
    """Warn of settings for a new stream that this stream has decided otherwise."""
    is_of = {
        "target_kind": directory.schema.target_kind,
        "n_features": directory.schema.stated or directory.schema.features,
    }
    for name, decided in is_of.items():
        wanted = getattr(settings, name)
        if directory.position >= 0 and wanted is not None and wanted != decided:
            log.warning("%s=%s is passed over: the stream in %s has %s", name, wanted, settings.dir, decided)


def listen(settings: Settings) -> socket.socket:
    """A socket at the settings' address. Raises OSError."""
    host = settings.host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio sets NODELAY only then
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, settings.port))
    except OSError as e:
        listening.close()
        raise OSError(f"cannot listen on {host} port {settings.port} ({e.strerror}); choose another port.") from e
    return listening


def _one_blas_thread() -> AbstractContextManager[object]:
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1)
