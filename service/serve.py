"""Serve: the process around the application; `stream-dr serve` and `python -m service` both call it.

Before anything listens: the address must be loopback or guarded by a token, the process must be the only worker, the
port must be free, the directory must not be in use. On SIGTERM or SIGINT: no new connections, requests under way end,
batches taken are appended and learned, every model is snapshotted, exit 0. A second signal does not wait for requests.

One writing process per directory, so one uvicorn server in one process.
"""

import asyncio
import gc
import logging
import math
import os
import resource
import socket
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic import ValidationError

import stream_dr
from service import auth
from service.settings import Settings

log = logging.getLogger("stream_dr.serve")

FILES = 256
"""Files kept free for what is no connection."""

SWITCH_INTERVAL = 1e-3
"""Seconds a thread may hold the interpreter while another waits: with the default 5e-3 a query waits behind parsing."""


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
    sys.setswitchinterval(SWITCH_INTERVAL)
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


class Server(uvicorn.Server):
    """uvicorn, but a signal ends it and the process goes on to exit 0: uvicorn raises a signal that it noted itself again
    after its shutdown. It bounds how many connections may be idle, too, which uvicorn does not.

    stopping: set at the first signal. At the second one requests under way are ended, as they are when the configuration's
    timeout_graceful_shutdown is over. ready: called once it answers.
    """

    def __init__(self, config: uvicorn.Config, stopping: asyncio.Event, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._stopping, self._ready = stopping, ready
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then say so."""
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        if self.started:
            self._ready()

    async def on_tick(self, counter: int) -> bool:
        """While there are more connections than are served, close those without a request: each takes a file."""
        connections = self.server_state.connections
        if len(connections) >= (self.config.limit_concurrency or math.inf):
            for connection in list(connections):
                connection.shutdown()  # which lets a request end first
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop; a second signal stops without waiting for requests."""
        again, self.should_exit = self.should_exit, True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._end_requests if again else self._stopping.set)

    def _end_requests(self) -> None:
        for task in self.server_state.tasks:
            task.cancel()


def server(app: FastAPI, settings: Settings, ready: Callable[[], None]) -> Server:
    """uvicorn over the application, as the settings have it. ready: called once it answers."""
    config = uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        loop="uvloop",
        log_config=None,
        log_level=settings.log_level,
        access_log=settings.log_level == "debug",
        server_header=False,
        lifespan="on",
        limit_concurrency=settings.max_connections + 1,  # uvicorn refuses at as many
        timeout_graceful_shutdown=math.ceil(settings.stop_timeout),
        workers=1,
    )
    return Server(config, app.state.shared.stopping, ready)


def _run(
    settings: Settings,
    directory: stream_dr.Directory,
    listening: socket.socket,
    on_ready: Callable[[str], None] | None,
) -> int:
    from service.app import create_app

    if settings.warm_up:
        stream_dr.warm_up(say=lambda line: print(line, file=sys.stderr, flush=True))
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
    serving = server(app, settings, ready)
    serving.run(sockets=[listening])
    if not serving.started:
        return 3
    return 0 if app.state.drained else 1


def open_directory(settings: Settings) -> stream_dr.Directory:
    """The directory that the settings name, writable. Raises DirectoryInUse."""
    from service.app import limits

    kind = settings.target_kind
    return stream_dr.Directory(settings.dir, limits=limits(settings), n_features=settings.n_features, target_kind=kind)


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
