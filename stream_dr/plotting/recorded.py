"""Recorded: a directory's records, from wherever they are given."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from stream_dr.directory.records import RECORDS, Records
from stream_dr.models.schema import Facts


def records_of(source: Any) -> list[Facts]:
    """The records of a directory, by its path or opened, or those given, oldest first."""
    if isinstance(source, str | Path):
        return Records(Path(source) / RECORDS).read()
    return source.records.read() if hasattr(source, "records") else list(source)


def recorded(facts: Sequence[Facts], kind: str, model: str | None = None) -> list[Facts]:
    """Those of a kind, and of one model."""
    return [f for f in facts if f["kind"] == kind and (model is None or f.get("model") == model)]


def when(facts: Facts) -> str:
    """A record's time, UTC, as plotly reads it."""
    return datetime.fromtimestamp(facts["time"], UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
