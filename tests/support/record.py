"""record: what a long run has done, one JSON line a part, so that it is done in parts and goes on where it was ended.

options = record.options(parser, runs=1_000)       # --runs, --seed, --resume
done = record.Record(options)                      # says its seed
while done.done < done.runs:
    …
    done.add(done.done + 1, {"kills": 1})
"""

import argparse
import json
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any


def options(parser: argparse.ArgumentParser, runs: int) -> argparse.Namespace:
    """What was given on the command line, with the options that every long run has."""
    parser.add_argument("--runs", type=int, default=runs, help="how many in all")
    parser.add_argument("--seed", type=int, help="of everything drawn; that of FILE, or a new one, where none is given")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="what was done; made if it is not there")
    return parser.parse_args()


class Record:
    """Runs done, of so many; `counts`: of what happened, over all parts. Names that begin with "most" are maxima."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._path: Path | None = options.resume
        lines = self._path.read_text("utf8").splitlines() if self._path and self._path.exists() else []
        told = [json.loads(line) for line in lines]
        seeds = {part["seed"] for part in told} | ({options.seed} - {None})
        if len(seeds) > 1:
            raise SystemExit(f"{self._path} is of seed {told[0]['seed']}, not {options.seed}")
        self.seed: int = seeds.pop() if seeds else random.SystemRandom().randrange(2**32)
        self.runs, self.done, self.seconds = options.runs, 0, 0.0
        self.counts: Counter[str] = Counter()
        for part in told:
            self._count(part)
        self._began = time.monotonic()
        print(f"seed {self.seed}, {self.done} of {self.runs} done", file=sys.stderr)

    def add(self, done: int, counts: dict[str, float]) -> None:
        """Note that all runs before `done` are done, and what happened in them since."""
        now = time.monotonic()
        part = {"seed": self.seed, "done": done, "seconds": round(now - self._began, 3), "counts": counts}
        self._began = now
        self._count(part)
        if self._path is not None:
            with self._path.open("a", encoding="utf8") as file:
                file.write(json.dumps(part) + "\n")

    def told(self) -> str:
        """What happened in all, as text."""
        counts = ", ".join(f"{name} {number:,.6g}" for name, number in sorted(self.counts.items()))
        return f"seed {self.seed}: {self.done:,} runs in {self.seconds:,.0f} s: {counts}"

    def _count(self, part: dict[str, Any]) -> None:
        self.done, self.seconds = part["done"], self.seconds + part["seconds"]
        for name, number in part["counts"].items():
            self.counts[name] = (
                max(self.counts[name], number) if name.startswith("most") else self.counts[name] + number
            )
