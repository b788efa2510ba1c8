"""Live: the figures of a directory that learns, drawn once for all who look, as bytes that a browser reads without parsing
numbers.

The bytes: 4 with the length of the header, little-endian; the header, JSON, filled up with spaces so that what follows
begins at a multiple of 8; then the figures' arrays, each at a multiple of 8. Where an array stood in a figure the
header has {"$": [type, offset, length]}, type being "f4", "f8" or "i4" and the offset that from the first array.

A figure is drawn anew when what it shows has changed, and kept for whoever asks next; the newest rows and the records
are read at most once a second, however many look.
"""

import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
import orjson
import plotly.graph_objects as go

from stream_dr.engine.directory import Directory
from stream_dr.engine.model import Model
from stream_dr.engine.newest import Newest, newest_rows
from stream_dr.engine.records import Following
from stream_dr.engine.schema import Facts
from stream_dr.errors import StreamDRError
from stream_dr.plotting.figure import nothing
from stream_dr.plotting.of_directory import Wanted, figure_of

SHOWN = ("projection", "spectrum", "loadings", "progress")

KEPT = 32
"""Figures that are kept, those asked for last."""

AGAIN = 1.0
"""Seconds until the newest rows, or the records, are read again."""

RECENT = 900.0
"""Seconds of progress that are shown."""

MOST_LABELS = 50
"""Labels that are counted, the most frequent; the others together."""

_TYPES = {np.dtype("f4"): "f4", np.dtype("f8"): "f8", np.dtype("i4"): "i4"}


class Drawn(NamedTuple):
    """A figure as JSON with places for its arrays, the arrays, and what names this state of it."""

    tag: str
    figure: Facts
    arrays: list[np.ndarray]


class LiveFigures:
    """The figures of a directory. Any thread asks; figures are drawn one at a time."""

    def __init__(self, directory: Directory) -> None:
        self._directory, self._records = directory, Following(directory.records)
        self._life = uuid.uuid4().hex[:8]  # tags of another process are not ours
        self._lock = threading.Lock()
        self._drawn: OrderedDict[tuple[object, ...], Drawn] = OrderedDict()
        self._newest: dict[int, tuple[float, Newest]] = {}

    def draw(self, name: str | None, wanted: Wanted, have: Collection[str], facts: Mapping[str, Any]) -> bytes:
        """The figures of a model, but for those whose tags the asker has, with the facts given and {"figures": {kind:
        {"tag", "figure"}}, "counts": [[label, rows], …]}; of no model, or one that is not there, progress alone."""
        model = self._directory.models.get(name or "")
        with self._lock:
            newest = self._rows(wanted.rows) if model is not None else Newest(-1)
            shown = {kind: self._figure(kind, model, wanted, newest) for kind in SHOWN if model or kind == "progress"}
            counts = self._counts(newest)
        told = {k: {"tag": d.tag} | ({} if d.tag in have else {"figure": d.figure}) for k, d in shown.items()}
        return packed({**facts, "figures": told, "counts": counts}, [d for d in shown.values() if d.tag not in have])

    def _rows(self, rows: int) -> Newest:
        """The newest rows, as of at most AGAIN ago; what was unlearned is gone then, too."""
        read, newest = self._newest.get(rows, (0.0, Newest(-2)))
        if newest.position != self._directory.position and time.monotonic() - read >= AGAIN:
            try:
                newest = newest_rows(self._directory, rows)
            except StreamDRError:  # damaged, or a shard is gone: its models fail by name
                newest = Newest(self._directory.position)
            self._newest = {rows: (time.monotonic(), newest), **{k: v for k, v in self._newest.items() if k != rows}}
            while len(self._newest) > 2:
                self._newest.popitem()
        return newest

    def _figure(self, kind: str, model: Model | None, wanted: Wanted, newest: Newest) -> Drawn:
        mine = model if kind != "progress" else None
        version = mine.published_version if mine is not None else 0
        records = _latest(self._records.read()) if kind == "progress" else ()
        seen: tuple[object, ...] = {
            "projection": (newest.position, wanted.rows, wanted.dimensions),
            "loadings": (wanted.component,),
            "progress": (self._records.seen,),
        }.get(kind, ())
        key = (kind, mine.id if mine is not None else None, *seen[1:])
        tag = f"{self._life}.{kind}." + ".".join(map(str, (key[1], version, *seen)))
        drawn = self._drawn.get(key)
        if drawn is None or drawn.tag != tag:
            try:
                figure = figure_of(self._directory, kind, mine, wanted, newest, records)
            except StreamDRError as e:
                figure = nothing(kind, str(e))
            drawn = Drawn(tag, *taken_apart(figure))
        self._drawn[key] = drawn
        self._drawn.move_to_end(key)
        while len(self._drawn) > KEPT:
            self._drawn.popitem(last=False)
        return drawn

    def _counts(self, newest: Newest) -> list[tuple[str, int]]:
        """How many of the newest rows have each label, the most frequent first; rows without one are left out."""
        targets = newest.targets
        if targets is None or targets.kind == "continuous":
            return []
        counted = np.bincount(targets.codes[targets.codes >= 0], minlength=len(targets.labels))
        order = np.argsort(-counted, kind="stable")
        told = [(str(targets.labels[i]), int(counted[i])) for i in order[:MOST_LABELS]]
        rest = int(counted[order[MOST_LABELS:]].sum())
        return told + ([(f"{len(order) - MOST_LABELS} other labels", rest)] if rest else [])


def _latest(records: list[Facts]) -> list[Facts]:
    """Those of the last RECENT seconds in which anything happened."""
    last = records[-1]["time"] if records else 0.0
    return [facts for facts in records if facts["time"] > last - RECENT]


def taken_apart(figure: go.Figure) -> tuple[Facts, list[np.ndarray]]:
    """A figure as JSON without its template, with the number of an array in each array's place, and the arrays."""
    arrays: list[np.ndarray] = []

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(part) for name, part in value.items() if name != "template"}
        if isinstance(value, list | tuple):
            return [plain(part) for part in value]
        if isinstance(value, np.ndarray):
            value = value.astype(np.int32) if value.dtype.kind in "iu" else value
            if value.dtype not in _TYPES or value.ndim != 1:
                return value.tolist()
            arrays.append(np.ascontiguousarray(value))
            return {"$": len(arrays) - 1}
        return value.item() if isinstance(value, np.generic) else value

    data = [plain(trace.to_plotly_json()) for trace in figure.data]
    return {"data": data, "layout": plain(figure.layout.to_plotly_json())}, arrays


def packed(header: Facts, drawn: list[Drawn]) -> bytes:
    """The bytes of a header and the figures in it; see the module's text."""
    parts, offset = [], 0
    places: dict[int, list[list[object]]] = {}
    for one in drawn:
        places[id(one.figure)] = mine = []
        for array in one.arrays:
            mine.append([_TYPES[array.dtype], offset, len(array)])
            padding = -array.nbytes % 8
            parts += [array.tobytes(), bytes(padding)]
            offset += array.nbytes + padding
    figures = {
        kind: told | ({"figure": _placed(told["figure"], places[id(told["figure"])])} if "figure" in told else {})
        for kind, told in header["figures"].items()
    }
    text_of = orjson.dumps(header | {"figures": figures}, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
    text_of += b" " * (-(4 + len(text_of)) % 8)
    return b"".join([len(text_of).to_bytes(4, "little"), text_of, *parts])


def _placed(value: Any, places: list[list[object]]) -> Any:
    """A figure's JSON with the arrays' places in the bytes for their numbers."""
    if isinstance(value, dict):
        if len(value) == 1 and "$" in value:
            return {"$": places[value["$"]]}
        return {name: _placed(part, places) for name, part in value.items()}
    return [_placed(part, places) for part in value] if isinstance(value, list) else value
