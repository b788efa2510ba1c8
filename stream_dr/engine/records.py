"""Records: what a directory's models did over time, for figures: one JSON object a line in D/records.jsonl.

Kinds: "progress" (position, rows; of each model rows, rate (rows a second; None: not known), lag, version and, where it
is tested, accuracy, baseline, tested), "published" (model, version, position, rows, solution, angles), "pass" (of a
refine: what engine/refine.py tells) and "failed" (model, position, code); each with `time`, seconds since 1970. angles:
principal angles (radians) between a version and the one recorded before it, ascending; None where a projection is not
linear.

Nothing that is learned, published or restored reads them: a file that is missing, damaged or cannot be written costs figures
alone. It is bounded: past MOST_BYTES every second line of the older half goes, but those of refines and failures.
"""

import contextlib
import json
import logging
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from stream_dr.disk import TEMPORARY
from stream_dr.engine.schema import Facts
from stream_dr.projection import Projection
from stream_dr.solve.tall_qr import tall_qr

log = logging.getLogger("stream_dr.records")

RECORDS = "records.jsonl"

MOST_BYTES = 8 << 20
"""Length of the file past which older lines are thinned out."""


_LASTING = (b'{"kind":"pass"', b'{"kind":"failed"')


class Records:
    """The records in a file. Any thread adds; who reads gets what is whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()

    def add(self, kind: str, **facts: Any) -> None:
        """Add one, with the time; a disk that does not take it is logged, and nothing else."""
        line = (
            json.dumps({"kind": kind, "time": round(time.time(), 3), **facts}, separators=(",", ":")).encode() + b"\n"
        )
        try:
            with self._lock, self.path.open("ab") as file:
                file.write(line)
                if file.tell() > MOST_BYTES:
                    self._thin()
        except OSError as e:
            log.warning("%s is not kept up: %s", self.path, e)

    def read(self) -> list[Facts]:
        """All there are, oldest first; lines that are not whole are left out."""
        try:
            lines = self.path.read_bytes().splitlines()
        except FileNotFoundError:
            return []
        found = []
        for line in lines:
            with contextlib.suppress(ValueError):
                facts = json.loads(line)
                if isinstance(facts, dict) and "kind" in facts and "time" in facts:
                    found.append(facts)
        return found

    def _thin(self) -> None:
        lines = self.path.read_bytes().splitlines(keepends=True)
        half = len(lines) // 2
        older = [line for i, line in enumerate(lines[:half]) if i % 2 or line.startswith(_LASTING)]
        kept = b"".join([*older, *lines[half:]])
        shorter = self.path.with_suffix(TEMPORARY)
        shorter.write_bytes(kept)
        shorter.replace(self.path)


def principal_angles(before: Projection, after: Projection) -> np.ndarray | None:
    """Principal angles (radians, ascending) between the spans of two linear projections' components; features that one has
    not count as 0 [Björck, Golub 1973]. None where one is not linear. O(features · p²)."""
    old, new = getattr(before, "loadings", None), getattr(after, "loadings", None)
    if old is None or new is None or not old.shape[1] or not new.shape[1]:
        return None
    d = max(len(old), len(new))
    first, second = (tall_qr(np.pad(loadings, ((0, d - len(loadings)), (0, 0))))[0] for loadings in (old, new))
    cosines = np.clip(np.linalg.svd(first.T @ second, compute_uv=False), 0.0, 1.0)
    wide, narrow = (first, second) if first.shape[1] >= second.shape[1] else (second, first)
    sines = np.clip(np.linalg.svd(narrow - wide @ (wide.T @ narrow), compute_uv=False)[::-1], 0.0, 1.0)
    found: np.ndarray = np.where(
        cosines**2 > 0.5, np.arcsin(sines), np.arccos(cosines)
    )  # each where it keeps its digits
    return found
