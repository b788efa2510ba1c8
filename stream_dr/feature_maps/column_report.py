"""Report on a table's columns before anything is learned.

For each column, the report states the kind, the encoding, and the options that would change the
kind or the encoding.
"""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from stream_dr.batch.table import column_values, find_column
from stream_dr.errors import StreamDRError, did_you_mean
from stream_dr.feature_maps.table import Table, Text
from stream_dr.feature_maps.table_columns import (
    LEFT_OUT,
    TableColumn,
    read_column,
    start_column,
    update_column_statistics,
)
from stream_dr.feature_maps.widths import (
    diagonal_only_reason,
    hashed_columns_per_text,
    kind_and_reason,
)

MANY = 8
"""Smallest number of similar columns that share one line of a report.

Fewer similar columns have one line each.
"""


class ColumnReport(NamedTuple):
    """Report on one column of a table.

    Attributes
    ----------
    name : str
        Name of the column.
    taken_for : str
        Inferred kind: "number", "date", "time", "category", "text", "dropped", "id" or "constant".
        "" while the column has no value.
    why : str
        Reason for the kind, in words.
    made : str
        Description, in words, of how the column is encoded. "" if the column is skipped.
    columns : int
        Number of numeric columns that encode this column so far.
    values : int
        Number of distinct values.
    missing : int
        Number of rows without a value.
    options : tuple of str
        Arguments of the feature map `table` that would change the kind or the encoding.
    """

    name: str
    taken_for: str
    why: str
    made: str
    columns: int
    values: int
    missing: int
    options: tuple[str, ...]


class TableReport(NamedTuple):
    """Report on the columns of a table.

    Attributes
    ----------
    rows : int
        Number of rows read.
    columns : tuple of ColumnReport
        Report on each column, in order.
    problems : tuple of str
        Errors that learning these rows would raise.
    note : str
        Reason why estimators would compute only the diagonal of the scatter matrix. "" if they
        would compute the whole matrix.
    """

    rows: int
    columns: tuple[ColumnReport, ...]
    problems: tuple[str, ...] = ()
    note: str = ""

    @property
    def used(self) -> int:
        """Number of the table's columns from which the map makes numeric columns."""
        return sum(bool(column.made) for column in self.columns)

    def __str__(self) -> str:
        """Return the report as text.

        Each column has one line. Many similar columns, such as the entries v0, v1 … of a vector,
        share one line.
        """
        could_be = ""
        if any(c.options for c in self.columns):
            could_be = "could be"
        lines = [("column", "taken for", "made of it", "why", could_be)]
        for columns in _group_vector_columns(self.columns):
            c = columns[0]
            last = columns[-1].name
            name, options = (c.name, ", ".join(c.options)) if c.name == last else (f"{c.name} … {last}", "")
            lines.append((name, c.taken_for or "nothing yet", c.made or "left out", c.why, options))
        widths = [max(map(len, part)) for part in zip(*lines, strict=True)]
        text = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        text += [f"note: {self.note}"] if self.note else []
        return "\n".join([*text, *(f"problem: {problem}" for problem in self.problems)])


def _group_vector_columns(columns: tuple[ColumnReport, ...]) -> list[list[ColumnReport]]:
    """Return columns in groups that share a line.

    A group has one line in the report.

    The columns v0, v1 … of a vector form a group if they have one kind and one encoding, and if
    there are at least MANY of them. Every other column forms a group alone.
    """
    # A run is a list of consecutive columns v0, v1 … of one kind and encoding.
    runs: list[list[ColumnReport]] = []
    for column in columns:
        before = runs[-1] if runs else []
        follows = before and column.name == f"{before[0].name[:-1]}{len(before)}" and before[0].name.endswith("0")
        same_encoding = ("taken_for", "made", "why")
        if follows and all(getattr(column, name) == getattr(before[0], name) for name in same_encoding):
            before.append(column)
        else:
            runs.append([column])
    return [part for run in runs for part in ([run] if len(run) >= MANY else [[column] for column in run])]


def suitable_map_spec(rows: pa.RecordBatch, table_spec: dict[str, Any]) -> dict[str, Any]:
    """Return the spec of the map that suits these rows.

    If the only encoded column is a text, the result is a spec of the map `text`. In all other
    cases the result is `table_spec`.

    rows: rows of a table.
    table_spec: spec of the map `table`.

    Raises InvalidParameter.
    """
    report = describe(rows, table_spec)
    used = [column for column in report.columns if column.taken_for not in LEFT_OUT]
    prose = [column.taken_for for column in used] == ["text"] and not report.problems
    if prose:
        return {"map": "text", "column": used[0].name}
    return table_spec


def describe(rows: pa.RecordBatch | Iterable[pa.RecordBatch], spec: dict[str, Any] | None = None) -> TableReport:
    """Return a report on the columns of rows.

    The report says how the map `table` or `text` would encode the columns. Errors in the rows are
    listed in `problems` of the report. Raises InvalidParameter for an invalid spec.

    rows: a table, or its batches. The kind of a column is inferred from the first batch
        with a value of the column.
    spec: spec of the map `table` or `text`. None: the map `table` with its defaults.
    """
    batches = [rows] if isinstance(rows, pa.RecordBatch) else list(rows)
    table_map = _table_map_of_spec(spec or {})
    table_map.check()

    # Report parameters of the map that name a column which does not exist.
    names = []
    if batches:
        names = batches[0].schema.names
    asked = {n: o for o in ("one_hot", "hash", "drop", "keep", "as_") for n in (getattr(table_map, o) or ())}
    problems = [
        f"{option} names {name!r}{did_you_mean(name, names)}, and there is no such column"
        for name, option in asked.items()
        if name not in names
    ]

    # Infer the kinds first, because text columns share a number of hashed words.
    inferred = {name: _infer_kind_from_batches(name, batches, table_map) for name in names}
    words = hashed_columns_per_text(table_map, (kind for kind, _ in inferred.values()))

    reported = [_report_column(name, batches, inferred[name], table_map, words) for name in names]
    problems += [problem for _, _, problem in reported if problem]
    # For the map `text` the scatter is always diagonal, so there is no note.
    note = ""
    if (spec or {}).get("map") != "text":
        note = diagonal_only_reason(table_map, [statistics for _, statistics, _ in reported])
    columns = tuple(report for report, _, _ in reported)
    return TableReport(sum(batch.num_rows for batch in batches), columns, tuple(problems), note)


def _table_map_of_spec(spec: dict[str, Any]) -> Table:
    """Return a Table map with the parameters of a spec.

    spec: spec of the map `table` or `text`. From a spec of `text`, only the number of hashed words
        and the name of the text column are used.
    """
    parameters = {name: value for name, value in spec.items() if name != "map"}
    if spec.get("map") != "text":
        return Table(**parameters)
    text = Text(**parameters)
    return Table(n_words=text.n_features, as_={text.column: "text"} if text.column else None)


def _infer_kind_from_batches(name: str, batches: list[pa.RecordBatch], table_map: Table) -> tuple[str, str]:
    """Return the inferred kind of a column, and the reason.

    The first batch with a value of the column decides.

    name: name of the column.
    batches: batches of the table. A later batch may lack the column.
    table_map: map with the kinds that the user declares.
    """
    inferred = "", ""
    for batch in batches:
        column = find_column(batch, name)
        if column is not None and not inferred[0]:
            inferred = kind_and_reason(name, column, table_map)
    return inferred


def _report_column(
    name: str, batches: list[pa.RecordBatch], inferred: tuple[str, str], table_map: Table, n_hashed_words: int
) -> tuple[ColumnReport, TableColumn, str]:
    """Return a column's report, its statistics and an error.

    The statistics are of the values in the batches before the first error. The error is the reason
    why the values cannot be learned, "" if they can be learned.

    name: name of the column.
    batches: batches of the table. A later batch may lack the column.
    inferred: kind of the column, and the reason.
    table_map: map by which the column is encoded.
    n_hashed_words: number of hashed words, if the column is a text.
    """
    kind, why = inferred
    column, width, problem = TableColumn(name), 0, ""
    values = set[object]()
    missing = 0

    # Count the values of each batch, and add them to the statistics until the first error.
    for batch in batches:
        given = find_column(batch, name)
        if given is None:
            continue
        read = column_values(given)
        values |= set(read.labels if read.has_texts else np.unique(read.values[~read.missing]).tolist())
        missing += given.null_count
        if kind and not column.kind:
            column, width = start_column(column, kind, n_hashed_words, width)
        try:
            if column.is_encoded and not problem:
                column, width = update_column_statistics(column, read_column(column, batch), table_map, width)
        except StreamDRError as e:
            problem = str(e)

    description = _describe_encoding(column, table_map)
    options = _argument_texts_changing_encoding(column)
    report = ColumnReport(name, kind, why, description, width, len(values), missing, options)
    return report, column, problem


def _describe_encoding(column: TableColumn, table_map: Table) -> str:
    """Describe in words how a column is encoded.

    The result is "" if the column is skipped.
    """
    fill = "the mean" if table_map.impute == "mean" else table_map.impute
    gaps = ""
    if column.missing >= 0:
        gaps = f" + missing (filled by {fill})"

    if column.kind == "category":
        parts = []
        if column.categories:
            parts = [f"{len(column.categories)} one-hot"]
        parts += [f"{table_map.n_hashed} hashed"] if column.hashed >= 0 else []
        return " + ".join([*parts, *(["missing"] if gaps else [])])
    if column.kind == "text":
        return f"{len(column.places):,} hashed words" + (" + missing" if gaps else "")
    cycles = {"date": "years, cycles of year and week", "time": "years, cycles of year, week and day"}
    if column.is_encoded:
        return cycles.get(column.kind, "number") + gaps
    return ""


def _argument_texts_changing_encoding(column: TableColumn) -> tuple[str, ...]:
    """Return arguments that would change a column's encoding.

    They are arguments of the feature map `table`, which the report on the column shows. Some
    change the column's kind, and with it the encoding.
    """
    name = column.name
    kind = column.kind
    named = _as_json([name])
    text = _as_json({name: "text"})
    category = _as_json({name: "category"})
    if kind in ("id", "constant"):
        return (f"keep={named}",)
    if kind == "category":
        return (f"{'one_hot' if column.hashed >= 0 else 'hash'}={named}", f"as_={text}", f"drop={named}")
    if kind == "number":
        return (f"as_={category}", *(("impute=0",) if column.missing >= 0 else ()), f"drop={named}")
    if column.is_encoded:
        return (f"as_={category}", f"drop={named}")
    return ()


def _as_json(value: object) -> str:
    """Return a value as JSON, for the report's arguments."""
    return json.dumps(value, ensure_ascii=False)
