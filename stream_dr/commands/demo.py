"""`stream-dr demo`: shards, replay, service, HTTP, one table; on made-up documents, and digits beside."""

import os
import signal
import threading
from pathlib import Path
from typing import Annotated, Any

import typer

from stream_dr.commands.output import Bar, result, say

HOST = "127.0.0.1"


def demo(
    exit: Annotated[bool, typer.Option("--exit", help="End after the table instead of serving on.")] = False,
    dir: Annotated[Path, typer.Option("--dir", help="Its directory; a second run continues there.")] = Path(
        "demo-stream"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="The service's port; 0 takes a free one.")] = 8000,
) -> None:
    """Show the whole path: shards, replay through four models, the service, HTTP, one table.

    On made-up documents of 47,236 words, served until Ctrl-C; handwritten digits are learned beside. Run again on the same
    directory it continues and learns nothing twice.
    """
    from service.serve import main
    from stream_dr import demo as steps

    data = steps.documents()
    shards = steps.shards_of(dir / "shards", data)
    say(
        f"{len(data.y):,} made-up documents of {data.X.shape[1]:,} words in {len(shards)} shards; "
        f"{len(data.y_held_out):,} others are asked for"
    )
    with Bar("replay", len(data.y)) as bar:
        rates = steps.replay_shards(
            dir,
            shards[: steps.REPLAYED],
            steps.MODELS,
            lambda p: bar.show(p.rows, p.total_rows, f"{p.shards} of {p.total_shards} shards"),
            say,
        )
    failed: list[Exception] = []

    def run(address: str) -> None:
        """What is done over HTTP once the service answers, in a thread of its own; the service has the main one."""
        try:
            _ask(address, dir, shards[steps.REPLAYED :], data, rates, exit)
        except Exception as e:
            failed.append(e)
        if exit or failed:
            os.kill(os.getpid(), signal.SIGTERM)

    def start(address: str) -> None:
        threading.Thread(target=run, args=(address,), name="demo-client", daemon=True).start()

    status = main(dir=dir, host=HOST, port=port, log_level="warning", on_ready=start)
    if failed:
        raise failed[0]
    raise typer.Exit(status)


def _ask(address: str, dir: Path, shards: list[Path], data: Any, rates: dict[str, float], exit: bool) -> None:
    from stream_dr import demo as steps

    answers = list(steps.post_shards(address, shards))
    new = [a for a in answers if not a["duplicate"]]
    say(f"posted {len(answers)} batches to {address}, {len(new)} of them new; last position {answers[-1]['position']}")
    first = data.X_held_out[:1]
    one = steps.ask_one(address, first)
    say(f"GET /transform: version {one['version']}, position {one['position']}, solution {one['solution']}")
    whole = 8e-9 * len(data.y) * data.X.shape[1]
    _show(
        "The topic of a document: that of the nearest one learned",
        steps.table(address, data, rates),
        f"of {len(data.y_held_out):,} others; all rows dense would take {whole:.1f} GB",
    )
    digits = steps.digits_table(dir / "digits")
    _show("A handwritten digit: that of the nearest class mean", digits, "of 359 others, of 64 numbers each")
    result(f"\nEverything there is to see is in {steps.report(address, dir)}")
    if not exit:
        result(f"\nServing until Ctrl-C. Look at {address}/ or try:\n")
        for line in steps.curl_lines(address, first):
            result(line)


def _show(title: str, lines: list[Any], caption: str) -> None:
    from rich.console import Console
    from rich.table import Table

    shown = Table(title=title, caption=caption)
    for column in ("model", "components", "rows seen", "accuracy", "bytes a row", "µs a query", "rows/s"):
        shown.add_column(column, justify="left" if column == "model" else "right")
    for line in lines:
        rate = "–" if line.rate is None else f"{line.rate:,.0f}"
        figures = (f"{line.accuracy:.3f}", f"{line.bytes:,.0f}", f"{line.seconds * 1e6:,.1f}")
        shown.add_row(line.model, f"{line.components:,}", f"{line.rows}", *figures, rate)
    Console(width=100).print(shown)
