"""Commands that serve a directory over HTTP: `serve` and `demo`."""

import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stream_dr.commands.output import ProgressBar, print_result, say
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

    # `serve_command` calls this function with the opened directory, before the service starts.
    def add_specified_models(directory: "Directory") -> None:
        for spec in specs:
            add_model(directory, *spec)

    raise typer.Exit(serve_command(dir=dir, host=host, port=port, prepare=add_specified_models))


HOST = "127.0.0.1"


def demo(
    exit: Annotated[
        bool, typer.Option("--exit", help="Exit after the tables. By default the service keeps running.")
    ] = False,
    dir: Annotated[Path, typer.Option("--dir", help="Directory of the demo. A second run continues there.")] = Path(
        "demo-stream"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the service. 0 picks a free port.")] = 8000,
) -> None:
    """Run all steps, from made-up documents to tables of results.

    The demo does the following:

    - generate documents from a vocabulary of 47,236 words and write them as shards,
    - let four models learn the shards,
    - serve the models over HTTP until Ctrl-C,
    - post more documents to the service and query it,
    - learn handwritten digits.

    A second run with the same directory continues the first run, and learns no row twice.
    """
    from service.serve import serve_command
    from stream_dr import demo as steps

    data = steps.generate_documents()
    shards = steps.ensure_training_shards(dir / "shards", data)
    documents = f"{len(data.y):,} made-up documents of {data.X.shape[1]:,} words in {len(shards)} shards"
    say(f"{documents}; {len(data.y_held_out):,} others are asked for")

    with ProgressBar("replay", len(data.y)) as bar:

        def show_replay(p: Any) -> None:
            # The phase as title starts the time anew, after compiling.
            bar.show(p.rows, p.total_rows, f"{p.shards} of {p.total_shards} shards", p.phase)

        rates = steps.measure_replay(dir, shards[: steps.REPLAYED], steps.MODELS, show_replay, say)

    # The service needs the main thread, so the client of the service runs in another thread.
    errors: list[Exception] = []

    def post_and_stop(address: str) -> None:
        try:
            _post_shards(address, dir, shards[steps.REPLAYED :], data, rates, exit)
        except Exception as e:
            errors.append(e)
        # The signal ends `serve_command` in the main thread.
        if exit or errors:
            os.kill(os.getpid(), signal.SIGTERM)

    def start_client(address: str) -> None:
        threading.Thread(target=post_and_stop, args=(address,), name="demo-client", daemon=True).start()

    status = serve_command(dir=dir, host=HOST, port=port, log_level="warning", on_ready=start_client)
    if errors:
        raise errors[0]
    raise typer.Exit(status)


def _post_shards(
    address: str, dir: Path, shards: list[Path], data: Any, replay_rates: dict[str, float], exit_at_end: bool
) -> None:
    """Post shards to the service, print tables of accuracy and speed, and write the report.

    address: address of the service.
    dir: directory of the demo.
    shards: shards to post.
    data: the generated documents.
    replay_rates: rows per second of each model in an earlier replay, to be printed, by the model's
        name.
    exit_at_end: True if the service stops afterwards. If False, commands to try are printed.
    """
    from stream_dr import demo as steps

    # A second run of the demo posts the same batches again, which the service recognises.
    answers = list(steps.post_shard_batches(address, shards))
    new = [answer for answer in answers if not answer["duplicate"]]
    say(f"posted {len(answers)} batches to {address}, {len(new)} of them new; last position {answers[-1]['position']}")
    first = data.X_held_out[:1]
    projected = steps.project_row_with_lda(address, first)
    fields = [f"{name} {projected[name]}" for name in ("version", "position", "solution")]
    say(f"GET /transform: {', '.join(fields)}")

    # Score the models on held-out documents, and on the held-out 359 of scikit-learn's digits.
    # A dense row has 8 bytes (8e-9 gigabytes) for each feature.
    dense_gb = 8e-9 * len(data.y) * data.X.shape[1]
    caption = f"of {len(data.y_held_out):,} others; all rows dense would take {dense_gb:.1f} GB"
    documents = steps.score_served_models(address, data, replay_rates)
    _print_score_table("The topic of a document: that of the nearest one learned", documents, caption)
    digits = steps.learn_digits(dir / "digits")
    caption = "of 359 others, of 64 numbers each"
    _print_score_table("A handwritten digit: that of the nearest class mean", digits, caption)

    print_result(f"\nEverything there is to see is in {steps.report(address, dir)}")
    if not exit_at_end:
        print_result(f"\nServing until Ctrl-C. Look at {address}/ or try:\n")
        for line in steps.example_curl_commands(address, first):
            print_result(line)


def _print_score_table(title: str, lines: list[Any], caption: str) -> None:
    """Print a table of scores on stdout.

    lines: one object for each model. Its field `rate` is the rows per second, None if not measured.
    """
    from rich.console import Console
    from rich.table import Table

    # `bytes` is the size of one projected row, and `seconds` is the time of one query.
    table = Table(title=title, caption=caption)
    table.add_column("model")
    for column in ("components", "rows seen", "accuracy", "bytes a row", "µs a query", "rows/s"):
        table.add_column(column, justify="right")
    for line in lines:
        rate = f"{line.rate:,.0f}" if line.rate is not None else "–"
        figures = (f"{line.accuracy:.3f}", f"{line.bytes:,.0f}", f"{line.seconds * 1e6:,.1f}")
        table.add_row(line.model, f"{line.components:,}", f"{line.rows}", *figures, rate)
    Console(width=100).print(table)
