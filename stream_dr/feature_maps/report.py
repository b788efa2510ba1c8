"""report: what a table's columns are taken for, what is made of them, and what they would take instead; before anything is
learned."""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from stream_dr.errors import StreamDRError, did_you_mean
from stream_dr.feature_maps.columns import LEFT_OUT, TableColumn, begun, learned, read_as
from stream_dr.feature_maps.table import Table, Text
from stream_dr.feature_maps.taken_for import TakenFor, taken_for
from stream_dr.feature_maps.widths import diagonal_reason, words_of
from stream_dr.rows.raw_rows import RawColumn, RawRows

MANY = 8
"""Columns alike that a report tells in one line."""


class ColumnReport(NamedTuple):
    """name. taken_for: "number", "date", "time", "category", "text", "dropped", "id", "constant", or "" while it has no
    value. why: in words. made: what is made of it, in words; "" where it is left out. columns: how many that is so far.
    values: distinct ones. missing: rows without one. options: what else it could be, as `table` takes it."""

    name: str
    taken_for: str
    why: str
    made: str
    columns: int
    values: int
    missing: int
    options: tuple[str, ...]


class TableReport(NamedTuple):
    """Report on a table.

    rows: number of rows read. columns: one report each, in order. problems: reasons why the rows would be refused. note: why
    only the diagonal of the scatter would be kept, or "".
    """

    rows: int
    columns: tuple[ColumnReport, ...]
    problems: tuple[str, ...] = ()
    note: str = ""

    @property
    def used(self) -> int:
        """Columns of which something is made."""
        return sum(bool(column.made) for column in self.columns)

    def __str__(self) -> str:
        """A line a column, and one for all places of a vector."""
        could_be = "could be" if any(c.options for c in self.columns) else ""
        lines = [("column", "taken for", "made of it", "why", could_be)]
        for columns in _alike(self.columns):
            c, last = columns[0], columns[-1].name
            name, options = (c.name, ", ".join(c.options)) if c.name == last else (f"{c.name} … {last}", "")
            lines.append((name, c.taken_for or "nothing yet", c.made or "left out", c.why, options))
        widths = [max(map(len, part)) for part in zip(*lines, strict=True)]
        told = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        told += [f"note: {self.note}"] if self.note else []
        return "\n".join([*told, *(f"problem: {problem}" for problem in self.problems)])


def _alike(columns: tuple[ColumnReport, ...]) -> list[list[ColumnReport]]:
    """Columns that are called v0, v1 … and are taken alike, together where they are at least MANY; others one by one."""
    runs: list[list[ColumnReport]] = []
    for column in columns:
        before = runs[-1] if runs else []
        follows = before and column.name == f"{before[0].name[:-1]}{len(before)}" and before[0].name.endswith("0")
        if follows and (column.taken_for, column.made, column.why) == (
            before[0].taken_for,
            before[0].made,
            before[0].why,
        ):
            before.append(column)
        else:
            runs.append([column])
    return [part for run in runs for part in ([run] if len(run) >= MANY else [[column] for column in run])]


def map_for(rows: RawRows, spec: dict[str, Any]) -> dict[str, Any]:
    """Return the spec of the map that suits rows, `text` if all that is made of them is one text.

    spec: of `table`, returned for all other rows. Raises InvalidParameter.
    """
    report = describe(rows, spec)
    used = [column for column in report.columns if column.taken_for not in LEFT_OUT]
    prose = [column.taken_for for column in used] == ["text"] and not report.problems
    return {"map": "text", "column": used[0].name} if prose else spec


def describe(rows: RawRows | Iterable[RawRows], spec: dict[str, Any] | None = None) -> TableReport:
    """Return what `table` or `text` with this spec makes of rows, the first batch of which decides.

    spec: None for the defaults of `table`. Raises InvalidParameter for a spec that suits no rows. `problems` of the report
    says what is wrong with these rows.
    """
    batches = [rows] if isinstance(rows, RawRows) else list(rows)
    made = _table(spec or {})
    made.check()
    names = batches[0].names if batches else ()
    asked = {n: o for o in ("one_hot", "hash", "drop", "keep", "as_") for n in (getattr(made, o) or ())}
    problems = [
        f"{option} names {name!r}{did_you_mean(name, names)}, and there is no such column"
        for name, option in asked.items()
        if name not in names
    ]
    given = {name: [batch.column(name) for batch in batches] for name in names}
    taken = {name: _taken(name, given[name], made) for name in names}
    begins = {name: taken[name].kind for name in names if taken[name].kind}
    words = words_of(made.making(), [TableColumn(name) for name in names], begins)

    columns, learned_columns = [], []
    for name in names:
        report, column, problem = _report(name, given[name], taken[name], made, words)
        columns.append(report)
        learned_columns.append(column)
        problems += [problem] if problem else []
    # The scatter of texts alone is never kept whole, which is no news.
    note = "" if (spec or {}).get("map") == "text" else diagonal_reason(made.making(), learned_columns)
    return TableReport(sum(batch.rows for batch in batches), tuple(columns), tuple(problems), note)


def _table(spec: dict[str, Any]) -> Table:
    """Return the table of a spec; of a text's, one with as many words."""
    given = {name: value for name, value in spec.items() if name != "map"}
    if spec.get("map") != "text":
        return Table(**given)
    made = Text(**given)
    return Table(n_words=made.n_features, as_={made.column: "text"} if made.column else None)


def _taken(name: str, batches: list[RawColumn | None], made: Table) -> TakenFor:
    """What a column is taken for, by the first batch that tells."""
    taken = taken_for(name, batches[0] or _nothing(), made.wishes())
    for given in filter(None, batches):
        taken = taken if taken.kind else taken_for(name, given, made.wishes())
    return taken


def _report(
    name: str, batches: list[RawColumn | None], taken: TakenFor, made: Table, words: int
) -> tuple[ColumnReport, TableColumn, str]:
    """Return a column's report, the column as learned, and what would refuse its values."""
    making, column, width, problem = made.making(), TableColumn(name), 0, ""
    values, missing = set[object](), 0
    for given in filter(None, batches):
        values |= set(given.labels if given.kind == "text" else np.unique(given.values[~given.missing]).tolist())
        missing += int(given.missing.sum())
        if taken.kind and not column.kind:
            column, width = begun(column, taken.kind, words, width)
        try:
            if column.made and not problem:
                column, width = learned(column, read_as(column, given, len(given.values)), making, width)
        except StreamDRError as e:
            problem = str(e)
    return (
        ColumnReport(name, taken.kind, taken.why, _made(column, made), width, len(values), missing, _options(column)),
        column,
        problem,
    )


def _nothing() -> RawColumn:
    return RawColumn("number", np.zeros(0))


def _made(column: TableColumn, made: Table) -> str:
    gaps = (
        f" + missing (filled by {'the mean' if made.impute == 'mean' else made.impute})" if column.missing >= 0 else ""
    )
    if column.kind == "category":
        parts = [f"{len(column.categories)} one-hot"] if column.categories else []
        parts += [f"{made.n_hashed} hashed"] if column.hashed >= 0 else []
        return " + ".join([*parts, *(["missing"] if gaps else [])])
    if column.kind == "text":
        return f"{len(column.places):,} hashed words" + (" + missing" if gaps else "")
    cycles = {"date": "years, cycles of year and week", "time": "years, cycles of year, week and day"}
    return cycles.get(column.kind, "number") + gaps if column.made else ""


def _options(column: TableColumn) -> tuple[str, ...]:
    name, kind = column.name, column.kind
    named, text, category = _said([name]), _said({name: "text"}), _said({name: "category"})
    if kind in ("id", "constant"):
        return (f"keep={named}",)
    if kind == "category":
        return (f"{'one_hot' if column.hashed >= 0 else 'hash'}={named}", f"as_={text}", f"drop={named}")
    if kind == "number":
        return (f"as_={category}", *(("impute=0",) if column.missing >= 0 else ()), f"drop={named}")
    return (f"as_={category}", f"drop={named}") if column.made else ()


def _said(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
