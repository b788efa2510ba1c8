"""Command `stream-dr serve`, which serves a directory over HTTP."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stream_dr.commands.specs import Models, add_model, parse_model_spec

if TYPE_CHECKING:
    from stream_dr.directory.directory import Directory


def serve(
    dir: Annotated[
        Path | None,
        typer.Option(
            "--dir", help="Directory to serve. It is created if missing. Default: STREAM_DR_DIR, or else stream."
        ),
    ] = None,
    model: Models = None,
    host: Annotated[
        str | None,
        typer.Option(help="Address to listen on. An address other than loopback needs a token. Default: 127.0.0.1."),
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port to listen on. 0 picks a free port. Default: 8000.")
    ] = None,
) -> None:
    """Serve a directory over HTTP until Ctrl-C or SIGTERM.

    When the service stops, it learns all accepted batches, writes snapshots and exits. All other
    settings are environment variables STREAM_DR_…, or are in the file that STREAM_DR_FILE
    names (docs/settings.md).

        stream-dr serve --dir D --model lda=lda.safetensors
    """
    from service.serve import serve_command

    specs = [parse_model_spec(text) for text in model or []]

    def add_specified_models(directory: "Directory") -> None:
        for spec in specs:
            add_model(directory, *spec)

    raise typer.Exit(serve_command(dir=dir, host=host, port=port, prepare=add_specified_models))
