"""Live: the figures of a directory that learns, drawn once for all who look, as JSON whose arrays are plotly's typed ones
({"dtype", "bdata"}), which a browser reads without parsing numbers.

What is told, and each figure, is made at most every AGAIN seconds, when it has changed, and kept for whoever asks next.
"""

import base64
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import NamedTuple

import numpy as np
import orjson

from stream_dr.directory.directory import Directory
from stream_dr.directory.newest import Newest, newest_rows
from stream_dr.directory.records import RecordsTail
from stream_dr.errors import StreamDRError
from stream_dr.models.model import Model
from stream_dr.models.schema import Facts
from stream_dr.plotting.figure import Plain, nothing
from stream_dr.plotting.of_directory import OF_ALL, Wanted, plain_of
from stream_dr.plotting.progress import leader

SHOWN = ("projection", "spectrum", "loadings", "accuracy", "progress", "confusion")

RECORDED = ("accuracy", "progress", "confusion")
"""Those that are drawn from records."""

KEPT = 32
"""Figures that are kept, those asked for last."""

AGAIN = 2.0
"""Seconds until anything is read or drawn again."""

MOST_LABELS = 50
"""Labels that are counted, the most frequent; the others together."""

Counts = list[tuple[str, int]]
"""Labels, and how many rows have each."""


class Drawn(NamedTuple):
    """A figure as JSON, what names this state of it, and when it was drawn."""

    tag: str
    figure: bytes
    when: float


class LiveFigures:
    """The figures of a directory. facts: gives what else is told, JSON-able. Any thread asks; figures are drawn one at
    a time."""

    def __init__(self, directory: Directory, facts: Callable[[], Facts]) -> None:
        self._directory, self._records = directory, RecordsTail(directory.records)
        self._facts, self._told = facts, (0.0, b"")
        self._life = uuid.uuid4().hex[:8]  # tags of another process are not ours
        self._lock = threading.Lock()
        self._drawn: OrderedDict[tuple[object, ...], Drawn] = OrderedDict()
        self._newest: dict[int, tuple[float, Newest, Counts]] = {}

    def draw(self, name: str | None, wanted: Wanted, have: Collection[str], rights: Facts) -> bytes:
        """JSON: {"told": facts, "figures": {kind: {"tag", "figure"}}, "counts": [[label, rows], …], "best": a Leader or
        None} and what `rights` holds. Of a figure whose tag the asker has the tag alone; of no model, or one that is not
        there, the figures of all models alone."""
        model = self._directory.models.get(name or "")
        with self._lock:
            if time.monotonic() - self._told[0] >= AGAIN:
                self._told = time.monotonic(), orjson.dumps(self._facts())
            told = self._told[1]
            best = leader(self._records.read(), self._directory.models.keys())
            newest, counts = self._rows(wanted.rows) if model is not None else (Newest(-1), [])
            shown = {kind: self._figure(kind, model, wanted, newest) for kind in SHOWN if model or kind in OF_ALL}
        figures: dict[str, Facts] = {}
        for kind, drawn in shown.items():
            figures[kind] = {"tag": drawn.tag}
            if drawn.tag not in have:
                figures[kind]["figure"] = orjson.Fragment(drawn.figure)
        return orjson.dumps(
            {
                "told": orjson.Fragment(told),
                "figures": figures,
                "counts": counts,
                "best": best and best._asdict(),
                **rights,
            }
        )

    def _rows(self, rows: int) -> tuple[Newest, Counts]:
        """The newest rows, as of at most AGAIN ago, and their labels; what was unlearned is gone then, too."""
        read, newest, counts = self._newest.get(rows, (0.0, Newest(-2), []))
        if newest.position != self._directory.position and time.monotonic() - read >= AGAIN:
            try:
                newest = newest_rows(self._directory, rows)
            except StreamDRError:  # damaged, or a shard is gone: its models fail by name
                newest = Newest(self._directory.position)
            counts = _counts(newest)
            self._newest = {
                rows: (time.monotonic(), newest, counts),
                **{k: v for k, v in self._newest.items() if k != rows},
            }
            while len(self._newest) > 2:
                self._newest.popitem()
        return newest, counts

    def _figure(self, kind: str, model: Model | None, wanted: Wanted, newest: Newest) -> Drawn:
        mine = model if kind not in OF_ALL else None
        version = mine.published_version if mine is not None else 0
        records = self._records.read() if kind in RECORDED else ()
        seen: tuple[object, ...] = {
            "projection": (newest.position, wanted.rows, wanted.dimensions),
            "loadings": (newest.position, wanted.rows, wanted.component),
            "spectrum": (newest.position, wanted.rows),
        }.get(kind, (self._records.seen,) if kind in RECORDED else ())
        key = (kind, mine.id if mine is not None else None, *seen[1:])
        tag = f"{self._life}.{kind}." + ".".join(map(str, (key[1], version, *seen)))
        drawn = self._drawn.get(key)
        now = time.monotonic()
        if drawn is None or (drawn.tag != tag and now - drawn.when >= AGAIN):
            try:
                figure = plain_of(self._directory, kind, mine, wanted, newest, records)
            except StreamDRError as e:
                figure = nothing(kind, str(e))
            drawn = Drawn(tag, as_json(figure), now)
        self._drawn[key] = drawn
        self._drawn.move_to_end(key)
        while len(self._drawn) > KEPT:
            self._drawn.popitem(last=False)
        return drawn


def _counts(newest: Newest) -> Counts:
    """How many of the newest rows have each label, the most frequent ones in order of the labels; rows without one are left
    out."""
    targets = newest.targets
    if targets is None or targets.kind == "continuous":
        return []
    counted = np.bincount(targets.codes[targets.codes >= 0], minlength=len(targets.labels))
    order = np.argsort(-counted, kind="stable")
    shown = sorted(order[:MOST_LABELS].tolist(), key=lambda code: targets.labels[code])
    told = [(str(targets.labels[i]), int(counted[i])) for i in shown if counted[i]]
    rest = int(counted[order[MOST_LABELS:]].sum())
    return told + ([(f"{len(order) - MOST_LABELS} other labels", rest)] if rest else [])


def as_json(figure: Plain) -> bytes:
    """A figure as JSON, its arrays as plotly's typed arrays; without the template, for the page has one of its own."""
    layout = {name: value for name, value in figure["layout"].items() if name != "template"}
    return orjson.dumps({"data": figure["data"], "layout": layout}, default=_typed_array)


def _typed_array(value: object) -> object:
    """What orjson does not know: arrays and numbers of numpy's."""
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "iuf":
        array = value.astype(np.int32) if value.dtype.kind in "iu" else value
        return {"dtype": array.dtype.str[1:], "bdata": base64.b64encode(array.tobytes()).decode()}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"a figure holds a {type(value).__name__}")
