"""`stream-dr demo`: shards, replay, service, HTTP, one table; on scikit-learn's digits."""

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
    """Show the whole path on real input: shards, replay through four models, the service, HTTP, one table.

    Serves on until Ctrl-C. Run again on the same directory it continues and learns nothing twice.
    """
    from service.serve import main
    from stream_dr import demo as steps

    data = steps.digits()
    shards = steps.digit_shards(dir / "shards", data)
    say(f"{len(data.y)} training rows in {len(shards)} shards, {len(data.y_held_out)} held out: {steps.SPLIT}")
    with Bar("replay", len(data.y)) as bar:
        rates = steps.replay_shards(
            dir,
            shards[: steps.REPLAYED],
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
    first = data.X_held_out[0]
    one = steps.ask_one(address, first)
    say(f"GET /transform: version {one['version']}, position {one['position']}, solution {one['solution']}")
    _show(steps.table(address, data, rates), steps.SPLIT)
    result(f"\nEverything there is to see is in {steps.report(dir)}")
    if not exit:
        result(f"\nServing until Ctrl-C. Look at {address}/ or try:\n")
        for line in steps.curl_lines(address, first):
            result(line)


def _show(lines: list[Any], split: str) -> None:
    from rich.console import Console
    from rich.table import Table

    shown = Table(title="scikit-learn digits", caption=split)
    for column in ("model", "components", "rows seen", "rows/s", "1-NN projected", "1-NN full"):
        shown.add_column(column, justify="left" if column == "model" else "right")
    for line in lines:
        rate = "–" if line.rate is None else f"{line.rate:,.0f}"
        shown.add_row(
            line.model, str(line.components), str(line.rows), rate, f"{line.projected:.3f}", f"{line.full:.3f}"
        )
    Console(width=100).print(shown)
