"""Serve a directory over HTTP until a signal stops the process.

`stream-dr serve` and `python -m service` both use this module.

The process serves only if all of these conditions are true:

- The address is loopback, or the settings have a token.
- The process is the only worker, because a directory has one writing process.
- The port is free.
- No other process writes to the directory.

On SIGTERM or SIGINT the service closes its port and lets running requests end. It then learns all
accepted batches, snapshots every model and exits with status 0. After a second signal it does not
wait for requests.

The service answers requests before it is ready. /readyz returns 503 while functions are compiled.

The service's log has lines of text, or one JSON object a line.
"""

import asyncio
import gc
import json
import logging
import math
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic import ValidationError

import stream_dr
from service import guards
from service.settings import Settings

TEXT_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class JsonFormatter(logging.Formatter):
    """Formatter that writes a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a JSON object."""
        time = datetime.fromtimestamp(record.created, UTC)
        fields = {
            "time": time.isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields)


def configure_logging(settings: Settings) -> None:
    """Configure the process's logging by the settings."""
    logging.basicConfig(level=settings.log_level.upper(), format=TEXT_FORMAT)

    # `stream-dr -v` has made a handler already, so handlers are changed and not made.
    if settings.log_format == "json":
        logging.captureWarnings(True)
        for handler in logging.getLogger().handlers:
            handler.setFormatter(JsonFormatter())


try:
    import resource

    import uvloop
except ImportError as e:
    raise OSError(f"{e}: the service needs Linux or macOS. On Windows, use the library or call a service.") from e

log = logging.getLogger("stream_dr.serve")

FILES = 256
"""Number of open files reserved for the log, the models and their shards."""


def serve(
    settings: Settings | None = None,
    on_ready: Callable[[str], None] | None = None,
    prepare: Callable[[stream_dr.Directory], None] = lambda directory: None,
    **overrides: Any,
) -> int:
    """Serve `settings.dir` until a signal and return the exit status.

    Parameters
    ----------
    settings : Settings or None
        If None, the settings are read from the environment and the settings file.
    on_ready : callable or None
        Called with the address when the service is ready. If None, the address is printed, or
        logged if the log is JSON.
    prepare : callable
        Called with the directory before the service starts, for example to create models.
    overrides
        Settings by name. They replace settings of the environment and the settings file.

    Raises
    ------
    ValueError
        Other machines can reach the address and there is no token, or more than one worker is
        requested.
    OSError
        The port is taken.
    DirectoryInUse
        Another process writes to the directory.
    """
    from threadpoolctl import threadpool_limits

    # An override of None leaves the setting of the environment or the file in force.
    settings = settings or Settings(**{k: v for k, v in overrides.items() if v is not None})
    guards.refuse_unguarded_host(settings)
    workers = os.environ.get("WEB_CONCURRENCY", "1")
    if workers != "1":
        raise ValueError(
            f"WEB_CONCURRENCY is {workers}: a directory has one writing process. Unset it; queries scale out with read "
            "replicas, not with workers."
        )
    raise_file_limit(settings)
    configure_logging(settings)

    # Bind the port before the directory is opened or created, because the port may be taken.
    # `threadpool_limits(1)` lets matrix products use one thread each.
    listening = bind_socket(settings)
    try:
        with threadpool_limits(1), open_directory(settings) as directory:
            prepare(directory)
            return _run_application(settings, directory, listening, on_ready)
    finally:
        listening.close()


def serve_command(**overrides: Any) -> int:
    """Run `serve` as a command, and return the exit status.

    If the service cannot start, the error and its code are printed on stderr, and the status is 1.

    overrides: settings by name, in place of those of the environment.
    """
    try:
        return serve(**overrides)
    except ValidationError as e:
        code = "settings"
        messages = []
        for error in e.errors():
            place = ".".join(map(str, error["loc"]))
            messages.append(f"{place or 'settings'}: {error['msg']}")
        message = f"{'; '.join(messages)} (docs/settings.md)"
    except (ValueError, OSError) as e:
        default = "settings" if isinstance(e, ValueError) else "io"
        code = getattr(e, "code", default)
        message = str(e)
    print(f"error ({code}): {message}", file=sys.stderr, flush=True)
    return 1


def raise_file_limit(settings: Settings) -> None:
    """Raise this process's limit of open files to the system's maximum.

    Raises ValueError if the maximum is too low for `max_connections` connections, and for the files
    of the log and the models.
    """
    # Each connection takes a file. FILES is the number of files that are open in addition.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = settings.max_connections + FILES

    if hard != resource.RLIM_INFINITY and hard < needed:
        raise ValueError(
            f"the system lets this process open {hard} files (ulimit -Hn); max_connections = {settings.max_connections} and "
            f"{FILES} for the log, the models and their shards make {needed}. Allow more, or set max_connections lower."
        )

    if soft == hard:
        return
    files = hard
    # Some systems do not allow infinity as the limit, so take only as many files as are needed.
    if hard == resource.RLIM_INFINITY:
        files = max(soft, needed)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))


class ServiceServer:
    """uvicorn server of the application.

    The signals SIGINT and SIGTERM have the effect of a call of `stop`.

    Parameters
    ----------
    app : FastAPI
    settings : Settings
    on_ready : callable
        Called on the event loop when the functions of the directory's models are compiled.
    """

    def __init__(self, app: FastAPI, settings: Settings, on_ready: Callable[[], None]) -> None:
        self._shared = app.state.shared
        self._ready = on_ready
        config = uvicorn.Config(
            app,
            # h11 bounds the size of a request's head.
            http="h11",
            h11_max_incomplete_event_size=settings.max_head_bytes,
            ws="none",
            log_config=None,
            log_level=settings.log_level,
            access_log=settings.log_level == "debug",
            server_header=False,
            lifespan="on",
            # uvicorn counts the new connection, too, and refuses it if the count reaches the limit.
            limit_concurrency=settings.max_connections + 1,
            timeout_graceful_shutdown=math.ceil(settings.stop_timeout),
            workers=1,
        )
        self._server = uvicorn.Server(config)
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def started(self) -> bool:
        """True if the server has started to answer requests."""
        return self._server.started

    def run(self, listening: socket.socket) -> None:
        """Serve until a signal arrives or `stop` is called.

        listening: bound socket at which the server accepts connections.
        """
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve(listening))

    def stop(self) -> None:
        """Stop the server.

        Running requests are cancelled after `stop_timeout` seconds. A second call cancels running
        requests immediately. Any thread may call this method.
        """
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._end_requests)

    async def _serve(self, listening: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        serving = asyncio.ensure_future(self._server.serve(sockets=[listening]))

        # Let uvicorn install its signal handlers, then replace the handlers.
        # uvicorn's handlers would raise the signal again after the shutdown.
        # The exit status would then not be 0.
        await asyncio.sleep(0)
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._loop.add_signal_handler(number, self._end_requests)

        # Call `on_ready` when models are compiled, unless the server stops.
        # `warming` lists the models whose functions are still being compiled.
        while not serving.done() and (not self._server.started or self._shared.warming):
            await asyncio.sleep(0.01)
        if not serving.done() and not self._shared.stopping.is_set():
            self._ready()
        await serving

    def _end_requests(self) -> None:
        # The first call lets running requests end. A second call cancels them.
        if not self._server.should_exit:
            self._server.should_exit = True
            self._shared.stopping.set()
            return
        for task in self._server.server_state.tasks:
            task.cancel()


def _run_application(
    settings: Settings, directory: stream_dr.Directory, listening: socket.socket, on_ready: Callable[[str], None] | None
) -> int:
    """Serve a directory until a signal, and return exit status.

    - 0: all threads that learn have finished their work, and the application has ended.
    - 1: the application has ended before.
    - 3: the application could not start.
    """
    from service.app import create_app

    # Build the OpenAPI document before requests arrive.
    # FastAPI changes the warning filters of all threads while it builds the document.
    app = create_app(directory, settings)
    app.openapi()

    # Exclude all existing objects, which live as long as the process, from garbage collection.
    # A collection that visits these objects would delay requests.
    gc.collect()
    gc.freeze()

    # A URL has an IPv6 address in brackets.
    host, port, *_ = listening.getsockname()
    if ":" in host:
        host = f"[{host}]"
    address = f"http://{host}:{port}"

    def announce() -> None:
        if on_ready is not None:
            on_ready(address)
        elif settings.log_format == "json":
            log.info("serving %s", address)
        else:
            print(f"serving {address}", file=sys.stderr, flush=True)

    warn_of_ignored_settings(settings, directory)

    serving = ServiceServer(app, settings, announce)
    serving.run(listening)
    if not serving.started:
        return 3
    if app.state.drained:
        return 0
    return 1


def open_directory(settings: Settings) -> stream_dr.Directory:
    """Open the directory of the settings for writing. Raises DirectoryInUse."""
    from service.app import limits

    return stream_dr.Directory(
        settings.dir,
        limits=limits(settings),
        n_features=settings.n_features,
        target_kind=settings.target_kind,
        allowed_labels=settings.allowed_labels,
    )


def warn_of_ignored_settings(settings: Settings, directory: stream_dr.Directory) -> None:
    """Log a warning for each setting that the service ignores.

    The settings `target_kind` and `n_features` are ignored if the existing stream has other
    values.
    """
    # The log is empty, so the new stream will take the settings.
    if directory.position < 0:
        return
    schema = directory.schema
    schema_values = {"target_kind": schema.target_kind, "n_features": schema.stated or schema.features}
    for name, actual in schema_values.items():
        setting = getattr(settings, name)
        if setting not in (None, actual):
            log.warning("%s=%s is passed over: the stream in %s has %s", name, setting, settings.dir, actual)


def bind_socket(settings: Settings) -> socket.socket:
    """Return a socket bound to the settings' address.

    Raises OSError.
    """
    host = settings.host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET

    # asyncio sets TCP_NODELAY only if the protocol is named.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, settings.port))
    except OSError as e:
        listening.close()
        raise OSError(f"cannot listen on {host} port {settings.port} ({e.strerror}); choose another port.") from e
    return listening
