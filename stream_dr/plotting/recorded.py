"""Recorded: reads and filters the records of a directory."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from stream_dr.aliases import JsonDict
from stream_dr.directory.directory import Directory
from stream_dr.directory.records import RECORDS, Records


def records_of(source: Any) -> list[JsonDict]:
    """Return the records of a directory, oldest first.

    source: a Directory, its path, or records, which are returned as a list.
    """
    if isinstance(source, str | Path):
        return Records(Path(source) / RECORDS).read()
    return source.records.read() if isinstance(source, Directory) else list(source)


def recorded(records: Sequence[JsonDict], kind: str, model: str | None = None) -> list[JsonDict]:
    """Return the records of a kind, or only those of one model."""
    return [r for r in records if r["kind"] == kind and (model is None or r.get("model") == model)]


def plotly_time(record: JsonDict) -> str:
    """Return a record's time, UTC, in plotly's format."""
    return datetime.fromtimestamp(record["time"], UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
