"""The command `stream-dr`: results on stdout, messages on stderr; exit status 0, 1 (an error with its code), 2 (usage) or
130 (Ctrl-C).

A command is a function in stream_dr/commands, added by one line in `COMMANDS`; its module is imported when it is called
or when help is asked for.

Why this way: an error is raised where it is found and shown here, in one form, whatever the command.
"""

import importlib
import logging
import os
import sys
from typing import Annotated

import typer

COMMANDS = (
    "demo",
    "suggest",
    "learn",
    "replay",
    "serve",
    "inspect",
    "transform",
    "refine",
    "plot",
    "report",
    "verify",
    "backup",
    "restore",
    "convert",
    "fetch",
    "generate",
    "evaluate",
)
"""Each is a function of that name in stream_dr/commands/NAME.py, or in the module that `_ELSEWHERE` says."""

_ELSEWHERE = {"suggest": "suggesting"}
"""A public function is called `suggest`, and no module may be."""

INTERRUPTED = 130
"""Exit status after Ctrl-C, as typer has it too."""

IDLE_THREADS = "OPENBLAS_THREAD_TIMEOUT", "4"
"""The BLAS of numpy and that of scipy each have threads that wait spinning for their next product, on cores that the other
needs: for 2**4 ticks then, not 2**26. Read when numpy is loaded."""

RESUMED = ("demo", "learn", "replay", "refine")
"""Commands that go on where they were stopped."""


def make_app(only: str | None = None) -> typer.Typer:
    """The typer application, with all commands or only one."""
    app = typer.Typer(
        name="stream-dr",
        help="Supervised projections of streams too large for memory: learn, serve, query.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(_stream_dr)
    for name in COMMANDS if only is None else (only,):
        module = importlib.import_module(f"stream_dr.commands.{_ELSEWHERE.get(name, name)}")
        app.command(name)(getattr(module, name))
    return app


def main(arguments: list[str] | None = None) -> None:
    """Run a command line and exit with its status."""
    os.environ.setdefault(*IDLE_THREADS)
    given = sys.argv[1:] if arguments is None else arguments
    named = next((word for word in given if not word.startswith("-")), "")
    try:
        status = _run(make_app(named if named in COMMANDS else None), given)
    except (typer.Abort, KeyboardInterrupt):
        status = INTERRUPTED
    if status == INTERRUPTED:
        does = "goes on where it was" if named in RESUMED else "begins anew"
        _refuse("interrupted", f"stopped before the end; the same command {does}.")
    sys.exit(status)


def _run(app: typer.Typer, arguments: list[str]) -> int:
    from stream_dr.errors import StreamDRError

    try:
        return app(arguments, standalone_mode=False, prog_name="stream-dr", obj=arguments) or 0
    except StreamDRError as e:
        return _refuse(e.code, str(e))
    except OSError as e:
        return _refuse("io", str(e))
    except Exception as e:
        if hasattr(e, "exit_code") and hasattr(e, "show"):  # click's usage errors, wherever typer keeps them
            e.show()
            return int(e.exit_code)
        raise


def _refuse(code: str, message: str) -> int:
    from stream_dr.commands.output import printable

    print(printable(f"error ({code}): {message}"), file=sys.stderr, flush=True)
    return 1


def _tell_version(asked: bool) -> None:
    if asked:
        import stream_dr

        print(f"stream-dr {stream_dr.__version__}")
        raise typer.Exit


def _stream_dr(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Tell the version and end.")
    ] = False,
    verbose: Annotated[
        int, typer.Option("--verbose", "-v", count=True, help="Tell on stderr what is done; -vv: in detail.")
    ] = 0,
) -> None:
    """Supervised projections of streams too large for memory: learn, serve, query."""
    if verbose:
        logging.basicConfig(
            level=logging.INFO if verbose == 1 else logging.DEBUG,
            format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        )


if __name__ == "__main__":
    main()
