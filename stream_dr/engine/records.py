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
import os
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from stream_dr.disk import TEMPORARY
from stream_dr.engine.schema import Facts
from stream_dr.projection import Projection
from stream_dr.solve.tall_qr import tall_qr

log = logging.getLogger("stream_dr.records")

RECORDS = "records.jsonl"

MOST_BYTES = 8 << 20
"""Length of the file past which older lines are thinned out."""


FOLLOWED, FOLLOWED_BYTES = 4_000, 2 << 20
"""Records that are held by who follows them, and bytes of the file that are read for it at first, the last."""

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
            return _facts(self.path.read_bytes())
        except FileNotFoundError:
            return []

    def _thin(self) -> None:
        lines = self.path.read_bytes().splitlines(keepends=True)
        half = len(lines) // 2
        older = [line for i, line in enumerate(lines[:half]) if i % 2 or line.startswith(_LASTING)]
        kept = b"".join([*older, *lines[half:]])
        shorter = self.path.with_suffix(TEMPORARY)
        shorter.write_bytes(kept)
        shorter.replace(self.path)


def _facts(text: bytes) -> list[Facts]:
    """The records in lines; what is none is left out."""
    found = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            facts = json.loads(line)
            if isinstance(facts, dict) and "kind" in facts and "time" in facts:
                found.append(facts)
    return found


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


class Following:
    """The newest records, read on from where they were read before. seen: changes with what there is to read. One owner."""

    def __init__(self, records: Records) -> None:
        self._path = records.path
        self._facts: deque[Facts] = deque(maxlen=FOLLOWED)
        self._at, self._read_at = 0, 0.0
        self.seen = 0

    def read(self) -> list[Facts]:
        """The newest FOLLOWED of them, oldest first; as they were within the last second."""
        now = time.monotonic()
        if now - self._read_at >= 1.0:
            self._read_at = now
            with contextlib.suppress(FileNotFoundError), self._path.open("rb") as file:
                self._read_on(file)
        return list(self._facts)

    def _read_on(self, file: BinaryIO) -> None:
        size = file.seek(0, os.SEEK_END)
        if size < self._at:  # it was thinned out
            self._facts.clear()
            self._at = 0
        if self._at == 0 and size > FOLLOWED_BYTES:
            self._at = size - FOLLOWED_BYTES
        file.seek(self._at)
        whole, newline, _ = file.read().rpartition(b"\n")
        self._at += len(whole) + len(newline)
        found = _facts(whole)
        self._facts.extend(found)
        self.seen += bool(found)
