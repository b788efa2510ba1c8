"""Serve: the process around the application; `stream-dr serve` and `python -m service` both call it.

Before anything listens: the address must be loopback or guarded by a token, the process must be the only worker, the
port must be free, the directory must not be in use. On SIGTERM or SIGINT: no new connections, requests under way end,
batches taken are appended and learned, every model is snapshotted, exit 0. A second signal does not wait for requests.

Why this way: one writing process per directory, so one uvicorn server in one process. uvicorn raises a caught signal again
after its shutdown, which would end the process with that signal; the server here takes signals itself and does not.
"""

import asyncio
import gc
import logging
import math
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

import uvicorn
from pydantic import ValidationError

import stream_dr
from service import auth
from service.connection import LEFT
from service.protocol import Protocol
from service.settings import Settings

log = logging.getLogger("stream_dr.serve")

SWITCH_INTERVAL = 1e-3
"""Seconds a thread may hold the interpreter while another waits. With the default 5e-3 a query waits behind parsing; 2e-4
took a twentieth more of the processors, and GET /transform 1.4 times as long as a bare route in one of a hundred cases where
this takes 1.15 times (`python benchmarks/service.py latency`)."""


def serve(settings: Settings | None = None, on_ready: Callable[[str], None] | None = None, **overrides: Any) -> int:
    """Serve `settings.dir` until a signal; the process's exit status.

    overrides: settings by name, over environment and file. on_ready: called with the address once it answers. Raises
    ValueError (an address others can reach without a token, more than one worker), OSError (port taken), DirectoryInUse.
    """
    settings = settings or Settings(**{k: v for k, v in overrides.items() if v is not None})
    auth.check_host(settings)
    check_one_worker()
    sys.setswitchinterval(SWITCH_INTERVAL)
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    listening = _listen(settings)
    try:
        with _one_blas_thread(), _directory(settings) as directory:
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


class Server(uvicorn.Server):
    """uvicorn, but a signal ends it and the process goes on to exit 0.

    Requests that are not answered `seconds` after it, or at the second one, lose their connection, as if their clients had
    gone away; uvicorn would cancel them, and what runs in the application with them.
    """

    def __init__(
        self, config: uvicorn.Config, stopping: Callable[[], None], ready: Callable[[], None], seconds: float
    ) -> None:
        super().__init__(config)
        self._stopping, self._ready, self._seconds = stopping, ready, seconds
        self._loop: asyncio.AbstractEventLoop | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take SIGTERM and SIGINT while serving; give them back after, without raising them again."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop; a second signal stops without waiting for requests."""
        self._stopping()
        again, self.should_exit = self.should_exit, True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.call_later, 0 if again else self._seconds, self._cut)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then say so."""
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        if self.started:
            self._ready()

    def _cut(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()  # type: ignore[union-attr]


def _run(settings: Settings, directory: Any, listening: socket.socket, on_ready: Callable[[str], None] | None) -> int:
    from service.app import create_app

    if settings.warm_up:
        stream_dr.warm_up()
    app = create_app(directory, settings)
    gc.collect()
    gc.freeze()  # what start-up made stays: a full collection over it would hold up every request for 0.1 s
    host, port = listening.getsockname()[:2]
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    ready = (
        (lambda: on_ready(address)) if on_ready else (lambda: print(f"serving {address}", file=sys.stderr, flush=True))
    )
    config = _config(app, settings)
    tell_passed_over(settings, directory)
    server = Server(config, app.state.stopping.set, ready, settings.stop_timeout)
    server.run(sockets=[listening])
    if not server.started:
        return 3
    return 1 if getattr(server.lifespan, "shutdown_failed", False) else 0


def _config(app: Any, settings: Settings) -> uvicorn.Config:
    from service.lane import Lane

    return uvicorn.Config(
        app,
        http=partial(Protocol, Lane(app.state)),  # type: ignore[arg-type]  # whatever takes its arguments will do
        ws="none",
        loop="uvloop",
        log_config=None,
        log_level=settings.log_level,
        access_log=False,
        server_header=False,
        lifespan="on",
        limit_concurrency=settings.max_connections,
        timeout_graceful_shutdown=math.ceil(settings.stop_timeout) + LEFT,
        workers=1,
    )


def _directory(settings: Settings) -> Any:
    from service.app import limits

    kind = settings.target_kind
    return stream_dr.Directory(settings.dir, limits=limits(settings), n_features=settings.n_features, target_kind=kind)


def tell_passed_over(settings: Settings, directory: Any) -> None:
    """Warn of settings for a new stream that this stream has decided otherwise."""
    is_of = {
        "target_kind": directory.schema.target_kind,
        "n_features": directory.schema.stated or directory.schema.features,
    }
    for name, decided in is_of.items():
        wanted = getattr(settings, name)
        if directory.position >= 0 and wanted is not None and wanted != decided:
            log.warning("%s=%s is passed over: the stream in %s has %s", name, wanted, settings.dir, decided)


def _listen(settings: Settings) -> socket.socket:
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


def _one_blas_thread() -> Any:
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1)
