"""The command `stream-dr`: results on stdout, messages on stderr; exit status 0, 1 (an error with its code) or 2
(usage).

A command is a function in stream_dr/commands, added by one line in `COMMANDS`; its module is imported when it is called
or when help is asked for.

Why this way: an error is raised where it is found and shown here, in one form, whatever the command.
"""

import importlib
import sys

import typer

COMMANDS = (
    "demo",
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
    "upgrade",
    "convert",
    "fetch",
    "generate",
    "evaluate",
)
"""Each is a function of that name in stream_dr/commands/NAME.py."""

INTERRUPTED = 130
"""What typer makes of Ctrl-C."""


def make_app(only: str | None = None) -> typer.Typer:
    """The typer application, with all commands or only one."""
    app = typer.Typer(
        name="stream-dr",
        help="Supervised projections of streams too large for memory: learn, serve, query.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(_stream_dr)
    for name in COMMANDS if only is None else (only,):
        module = importlib.import_module(f"stream_dr.commands.{name}")
        app.command(name)(getattr(module, name))
    return app


def main(arguments: list[str] | None = None) -> None:
    """Run a command line and exit with its status."""
    given = sys.argv[1:] if arguments is None else arguments
    only = given[0] if given and given[0] in COMMANDS else None
    sys.exit(_run(make_app(only), given))


def _run(app: typer.Typer, arguments: list[str]) -> int:
    from stream_dr.errors import StreamDRError

    try:
        status = app(arguments, standalone_mode=False, prog_name="stream-dr") or 0
        return _interrupted() if status == INTERRUPTED else status
    except StreamDRError as e:
        return _refuse(e.code, str(e))
    except (typer.Abort, KeyboardInterrupt):
        return _interrupted()
    except OSError as e:
        return _refuse("io", str(e))
    except Exception as e:
        if hasattr(e, "exit_code") and hasattr(e, "show"):  # click's usage errors, wherever typer keeps them
            e.show()
            return int(e.exit_code)
        raise


def _interrupted() -> int:
    return _refuse("interrupted", "stopped before the end; the same command goes on where it was.")


def _refuse(code: str, message: str) -> int:
    print(f"error ({code}): {message}", file=sys.stderr, flush=True)
    return 1


def _stream_dr() -> None:
    """Supervised projections of streams too large for memory: learn, serve, query."""


if __name__ == "__main__":
    main()
