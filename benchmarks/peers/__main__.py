"""Compare our methods with other libraries', and with what needs no projection.

    STREAM_DR_DATA=… python -m benchmarks.peers [--only NAME …] [--quick] [--minutes 30] [--write]

All methods learn the same rows of a data set once, in one thread. Each measurement is a process of
its own. In each of three rounds all methods are measured one after the other, so that a busy
machine slows all alike. Printed for each method are

- numbers and bytes: size of a stored row (four bytes a number, if it is not encoded),
- rows/s: medians over the rounds, of learning with the first row projected,
- MB: medians over the rounds, of the peak memory in addition to the rows,
- 5-NN: accuracy by the five nearest learned rows,
- linear: accuracy of logistic regression on the vectors, or of the linear classifier itself,
- same: share of the ten nearest learned rows that have the label (same-label@10),
- recall: share of the ten nearest by all features that are among the ten nearest.

If a row may have several labels, accuracies are shares of right entries, and `same` is the number
of common labels divided by the number of labels that either row has. A second table has 5-NN and
recall by the numbers a row. `--write` writes the tables into docs/where-it-pays.md, and draws
where-it-pays.png if all data sets of the picture were measured. Data sets and packages that are
not here are skipped, with the reason.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers import page, tasks
from benchmarks.peers.methods import METHODS, QUICK, reason_to_skip

ROOT = Path(__file__).parents[2]
ROUNDS = 3
LONGEST = 120
"""Seconds after which a measurement is given up."""

THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


def run(folder: Path, method: str, wants_quality: bool) -> dict[str, Any]:
    """Return the figures of a method, measured in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.peers.measure", str(folder), method]
    if wants_quality:
        command.append("--quality")
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=os.environ | THREADS, capture_output=True, text=True, timeout=LONGEST
        )
    except subprocess.TimeoutExpired:
        return {"skipped": f"took more than {LONGEST} s"}
    if done.returncode:
        return {"skipped": f"failed with {done.stderr.splitlines()[-1]}"}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure_round(folder: Path, methods: list[str], figures: dict[str, list[Any]], deadline: float) -> None:
    """Measure all methods of a task once, and append what was measured."""
    task = tasks.load_task(folder)
    for name in methods:
        is_first = not figures[name]
        if not is_first and "skipped" in figures[name][0]:
            continue
        reason = reason_to_skip(METHODS[name], task)
        if reason is None and time.monotonic() > deadline:
            reason = "no time was left"
        if reason is None:
            found = run(folder, name, is_first)
        else:
            found = {"skipped": reason}
        if is_first or "skipped" not in found:
            figures[name].append(found)


def combine(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of the first round, with medians of speed and memory."""
    figures = dict(rounds[0])
    if "skipped" not in figures:
        for key in ("rows", "memory"):
            figures[key] = float(np.median([found[key] for found in rounds]))
    return figures


def main(arguments: list[str] | None = None) -> None:
    """Measure, print the tables, and write them if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=tasks.SOURCES, default=list(tasks.SOURCES), metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="digits, five methods, one round")
    parser.add_argument("--minutes", type=float, default=30.0, help="no measurement starts in the last two of them")
    parser.add_argument("--write", action="store_true", help="write docs/where-it-pays.md and its picture")
    given = parser.parse_args(arguments)

    deadline = time.monotonic() + 60 * given.minutes - LONGEST
    methods = list(QUICK) if given.quick else list(METHODS)
    measured: dict[str, dict[str, list[Any]]] = {}
    with tempfile.TemporaryDirectory() as parent:
        for name in ["digits"] if given.quick else given.only:
            folder = Path(parent) / name
            folder.mkdir()
            try:
                tasks.save_task(tasks.read_task(name), folder)
            except FileNotFoundError as error:
                print(f"{name}: skipped. {error}", flush=True)
                continue
            measured[name] = {method: [] for method in methods}
        for number in range(1 if given.quick else ROUNDS):
            for name, figures in measured.items():
                measure_round(Path(parent) / name, methods, figures, deadline)
                print(f"round {number + 1}: {name}", file=sys.stderr, flush=True)
        results = {}
        for name, figures in measured.items():
            task = tasks.load_task(Path(parent) / name)
            combined = {method: combine(rounds) for method, rounds in figures.items()}
            rounds = min(len(found) for found in figures.values() if "skipped" not in found[0])
            results[name] = page.Result(task.X.shape, len(task.truth), task.classes, rounds, combined)

    for name, result in results.items():
        print(page.section(name, result), flush=True)
    print("Not at hand, and so not measured: " + ", ".join(tasks.MISSING) + ".")
    if given.write:
        page.write(results, ROOT / "docs")


if __name__ == "__main__":
    main()
