"""Command `stream-dr`.

Results go to stdout and messages to stderr. The exit status is one of these:

- 0: success.
- 1: an error, which is printed with its code.
- 2: wrong usage.
- 130: interrupted by Ctrl-C.

A command is a function in stream_dr/commands and a line in `COMMANDS`. The function's module is
imported when the command is called or when help is asked for.
"""

import importlib
import logging
import os
import sys
from typing import Annotated, Literal, Protocol, runtime_checkable

import typer

COMMANDS = {
    "demo": "serve",
    "suggest": "evaluate",
    "learn": "learn",
    "replay": "learn",
    "serve": "serve",
    "inspect": "directories",
    "transform": "writing",
    "refine": "learn",
    "plot": "directories",
    "report": "directories",
    "verify": "directories",
    "backup": "directories",
    "restore": "directories",
    "convert": "writing",
    "export": "writing",
    "fetch": "writing",
    "generate": "writing",
    "evaluate": "evaluate",
}
"""Module in stream_dr/commands of each command, by the command's name.

The command is the function with its name in this module.
"""

INTERRUPTED_STATUS = 130
"""Exit status after Ctrl-C, which is also typer's."""

BLAS_TIMEOUT_VARIABLE = "OPENBLAS_THREAD_TIMEOUT", "4"
"""Environment variable, and its value, that shortens the idle spinning of BLAS threads.

Numpy reads the variable when it is loaded. Numpy and scipy each have a BLAS library with threads
of its own. After a product, the threads of one library spin for 2**26 ticks on cores that the
other library needs. With this value the threads spin for 2**4 ticks.
"""

RESUMABLE_COMMANDS = ("demo", "learn", "replay", "refine")
"""Commands that continue where they were interrupted."""


@runtime_checkable
class UsageError(Protocol):
    """Error of wrong usage that Typer raises.

    Typer does not export the class of the error.
    """

    exit_code: int

    def show(self) -> None:
        """Print the message and the usage on stderr."""
        ...


def make_app(only_command: str | None = None) -> typer.Typer:
    """Return the typer application.

    only_command: name of the only command to include. None includes all commands.
    """
    app = typer.Typer(
        name="stream-dr",
        help="Learn, serve and query supervised projections of streams that do not fit in memory.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(_configure_logging)
    for name in COMMANDS if only_command is None else (only_command,):
        module = importlib.import_module(f"stream_dr.commands.{COMMANDS[name]}")
        app.command(name)(getattr(module, name))
    return app


def main(arguments: list[str] | None = None) -> None:
    """Run a command line and exit with its exit status.

    arguments: words after the program's name. None takes the words of this process.
    """
    # The variable must be set before numpy is loaded, so before the command's module is imported.
    os.environ.setdefault(*BLAS_TIMEOUT_VARIABLE)
    words = sys.argv[1:] if arguments is None else arguments
    command = next((word for word in words if not word.startswith("-")), "")

    try:
        status = _run_printing_errors(make_app(command if command in COMMANDS else None), words)
    except (typer.Abort, KeyboardInterrupt):
        status = INTERRUPTED_STATUS

    if status == INTERRUPTED_STATUS:
        does = "continues where it stopped" if command in RESUMABLE_COMMANDS else "starts from scratch"
        _print_error_get_status("interrupted", f"stopped before the end; the same command {does}.")
    sys.exit(status)


def _run_printing_errors(app: typer.Typer, arguments: list[str]) -> int:
    """Run a command and return its exit status.

    An error of the command is printed on stderr.
    """
    from stream_dr.errors import StreamDRError

    try:
        return app(arguments, standalone_mode=False, prog_name="stream-dr", obj=arguments) or 0
    except StreamDRError as e:
        return _print_error_get_status(e.code, str(e))
    except OSError as e:
        return _print_error_get_status("io", str(e))
    except Exception as e:
        if isinstance(e, UsageError):
            e.show()
            return e.exit_code
        raise


def _print_error_get_status(code: str, message: str) -> Literal[1]:
    """Print an error on stderr, and return exit status 1.

    code: stable code of the error (errors.py).
    """
    from stream_dr.commands.output import escape_controls

    print(escape_controls(f"error ({code}): {message}"), file=sys.stderr, flush=True)
    return 1


def _print_version_and_exit(is_requested: bool) -> None:
    """Print the version and exit if option --version is given."""
    if is_requested:
        import stream_dr

        print(f"stream-dr {stream_dr.__version__}")
        raise typer.Exit


def _configure_logging(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version_and_exit, is_eager=True, help="Print the version and exit."),
    ] = False,
    verbose: Annotated[
        int, typer.Option("--verbose", "-v", count=True, help="Log each step to stderr. -vv adds details.")
    ] = 0,
) -> None:
    """Learn, serve and query supervised projections of streams that do not fit in memory."""
    if verbose:
        logging.basicConfig(
            level=logging.INFO if verbose == 1 else logging.DEBUG,
            format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        )


if __name__ == "__main__":
    main()
