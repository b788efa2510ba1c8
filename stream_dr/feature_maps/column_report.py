"""Report on a table's columns before anything is learned.

For each column, the report states the kind, the encoding, and the options that would change the
kind or the encoding.
"""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

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
        Number of mapped columns that encode this column so far.
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
        """Number of the table's columns from which the map makes mapped columns."""
        return sum(bool(column.made) for column in self.columns)

    def __str__(self) -> str:
        """Return the report as text.

        Each column has one line. Many similar columns, such as the entries v0, v1 … of a vector,
        share one line.
        """
        # `options` are arguments that would encode a column in another way.
        # If no column has any, their title is left out. `made` is the encoding in words.
        could_be = ""
        if any(c.options for c in self.columns):
            could_be = "could be"
        lines = [("column", "taken for", "made of it", "why", could_be)]
        for columns in _group_vector_columns(self.columns):
            c = columns[0]
            name = c.name
            options = ", ".join(c.options)
            if len(columns) > 1:
                name = f"{c.name} … {columns[-1].name}"
                options = ""
            lines.append((name, c.taken_for or "nothing yet", c.made or "left out", c.why, options))

        # Align the cells of the lines. Notes and problems stand below.
        widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
        text = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        if self.note:
            text.append(f"note: {self.note}")
        text += [f"problem: {problem}" for problem in self.problems]
        return "\n".join(text)


def _group_vector_columns(columns: tuple[ColumnReport, ...]) -> list[list[ColumnReport]]:
    """Return columns in groups that share a line of the report.

    The columns v0, v1 … of a vector form a group if they have one kind and one encoding, and if
    there are at least MANY of them. Every other column forms a group alone.
    """
    # A run is a list of consecutive columns v0, v1 … of one kind and encoding. Runs of fewer than
    # MANY columns are split into single columns afterwards.
    runs: list[list[ColumnReport]] = []
    for column in columns:
        if runs and _continues_run(runs[-1], column):
            runs[-1].append(column)
        else:
            runs.append([column])

    groups = []
    for run in runs:
        if len(run) >= MANY:
            groups.append(run)
        else:
            groups += [[column] for column in run]
    return groups


def _continues_run(run: list[ColumnReport], column: ColumnReport) -> bool:
    """Return True if a column belongs to the same vector as the columns before it."""
    # The columns of a vector v are v0, v1, v2, …, and are encoded in the same way. If `run` has v0
    # and v1, the next column of the vector is v2.
    first = run[0]
    next_name = f"{first.name[:-1]}{len(run)}"
    if not first.name.endswith("0") or column.name != next_name:
        return False
    return (column.taken_for, column.made, column.why) == (first.taken_for, first.made, first.why)


def suitable_map_spec(rows: pa.RecordBatch, table_spec: dict[str, Any]) -> dict[str, Any]:
    """Return the spec of the map that suits these rows.

    If the only encoded column is a text, the result is a spec of the map `text`. In all other
    cases the result is `table_spec`.

    rows: rows of a table.
    table_spec: spec of the map `table`.

    Raises InvalidParameter.
    """
    # If the map `table` cannot learn the rows, keep it, so that its error is reported later.
    report = describe(rows, table_spec)
    if report.problems:
        return table_spec
    # `taken_for` is the inferred kind. Columns of the kinds LEFT_OUT, such as ids, are not encoded.
    encoded = [column for column in report.columns if column.taken_for not in LEFT_OUT]
    if len(encoded) == 1 and encoded[0].taken_for == "text":
        return {"map": "text", "column": encoded[0].name}
    return table_spec


def describe(rows: pa.RecordBatch | Iterable[pa.RecordBatch], spec: dict[str, Any] | None = None) -> TableReport:
    """Return a report on the columns of rows.

    The report says how the map `table` or `text` would encode the columns. Errors in the rows are
    listed in `problems` of the report. Raises InvalidParameter for an invalid spec.

    rows: a table, or its batches. The kind of a column is inferred from the first batch
        with a value of the column.
    spec: spec of the map `table` or `text`. None: the map `table` with its defaults.
    """
    if isinstance(rows, pa.RecordBatch):
        rows = [rows]
    batches = list(rows)
    spec = spec or {}
    table_map = _table_map_of_spec(spec)
    table_map.check()
    names = batches[0].schema.names if batches else []
    problems = _unknown_column_problems(table_map, names)

    # Infer the kinds first, because text columns share a number of hashed words.
    inferred = {name: _infer_kind_from_batches(name, batches, table_map) for name in names}
    kinds = [kind for kind, _ in inferred.values()]
    n_words = hashed_columns_per_text(table_map, kinds)

    reported = [_report_column(name, batches, inferred[name], table_map, n_words) for name in names]
    columns = tuple(report for report, _, _ in reported)
    statistics = [column_statistics for _, column_statistics, _ in reported]
    problems += [problem for _, _, problem in reported if problem]

    # The note says that a model would store only the diagonal of the columns' scatter matrix,
    # because they are too many. With the map `text`, this is always so and needs no note.
    note = ""
    if spec.get("map") != "text":
        note = diagonal_only_reason(table_map, statistics)
    n_rows = sum(batch.num_rows for batch in batches)
    return TableReport(n_rows, columns, tuple(problems), note)


def _unknown_column_problems(table_map: Table, names: list[str]) -> list[str]:
    """Return a message for each column that the table lacks."""
    # These are columns that a parameter of the map names, such as `drop`.
    # names: names of the table's columns.
    # `asked` has the last parameter that names a column, so each column is reported once.
    asked = {}
    for option in ("one_hot", "hash", "drop", "keep", "as_"):
        for name in getattr(table_map, option) or ():
            asked[name] = option
    return [
        f"{option} names {name!r}{did_you_mean(name, names)}, and there is no such column"
        for name, option in asked.items()
        if name not in names
    ]


def _table_map_of_spec(spec: dict[str, Any]) -> Table:
    """Return the Table map that encodes columns as a spec says.

    For a spec of `text`, it is a Table map that encodes the text column in the same way.

    spec: spec of the map `table` or `text`. Without the key "map", it is a spec of `table`.
    """
    parameters = {name: value for name, value in spec.items() if name != "map"}
    if spec.get("map") != "text":
        return Table(**parameters)

    # Only the number of hashed words and the name of the text column are used.
    text = Text(**parameters)
    kinds = None
    if text.column:
        kinds = {text.column: "text"}
    return Table(n_words=text.n_features, as_=kinds)


def _infer_kind_from_batches(name: str, batches: list[pa.RecordBatch], table_map: Table) -> tuple[str, str]:
    """Return the inferred kind of a column, and the reason.

    The first batch with a value of the column decides.

    name: name of the column.
    batches: batches of the table. A later batch may lack the column.
    table_map: map with the kinds that the user declares.
    """
    # The kind is "" while the column has no value. `column` is None if a batch lacks the column.
    kind = ""
    reason = ""
    for batch in batches:
        column = find_column(batch, name)
        if column is not None:
            kind, reason = kind_and_reason(name, column, table_map)
        if kind:
            break
    return kind, reason


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
    # `column` has the statistics, and `width` is the number of mapped columns that encode it.
    kind, why = inferred
    column = TableColumn(name)
    width = 0
    problem = ""
    distinct = set[object]()
    missing = 0

    # Count the distinct and the missing values of all batches.
    # Add the values to the statistics until the first error.
    for batch in batches:
        array = find_column(batch, name)
        if array is None:
            continue
        values = column_values(array)
        if values.has_texts:
            distinct.update(values.labels)
        else:
            distinct.update(values.values[~values.missing].tolist())
        missing += array.null_count

        # The statistics get their kind once. A kind that is not encoded has no further statistics.
        if kind and not column.kind:
            column, width = start_column(column, kind, n_hashed_words, width)
        if problem or not column.is_encoded:
            continue
        try:
            converted = read_column(column, batch)
            column, width = update_column_statistics(column, converted, table_map, width)
        except StreamDRError as e:
            problem = str(e)

    description = _describe_encoding(column, table_map)
    options = _argument_texts_changing_encoding(column)
    report = ColumnReport(name, kind, why, description, width, len(distinct), missing, options)
    return report, column, problem


def _describe_encoding(column: TableColumn, table_map: Table) -> str:
    """Describe in words how a column is encoded.

    The result is "" if the column is skipped.
    """
    if not column.is_encoded:
        return ""

    # `hashed` and `missing` of a column are indices of mapped columns, or −1 if there are none.
    # `places` are the indices of the mapped columns of its values.
    # A finished text is, for example, "3 one-hot + 8 hashed + missing".
    parts = []
    missing = "missing"
    if column.kind == "category":
        if column.categories:
            parts.append(f"{len(column.categories)} one-hot")
        if column.hashed >= 0:
            parts.append(f"{table_map.n_hashed} hashed")
    elif column.kind == "text":
        parts.append(f"{len(column.places):,} hashed words")
    else:
        cycles = {"date": "years, cycles of year and week", "time": "years, cycles of year, week and day"}
        parts.append(cycles.get(column.kind, "number"))
        fill = table_map.impute
        if fill == "mean":
            fill = "the mean"
        missing = f"missing (filled by {fill})"

    if column.missing >= 0:
        parts.append(missing)
    return " + ".join(parts)


def _argument_texts_changing_encoding(column: TableColumn) -> tuple[str, ...]:
    """Return arguments that would change a column's encoding.

    They are arguments of the feature map `table`, which the report on the column shows. Some
    change the column's kind, and with it the encoding.
    """
    # The value of an argument is JSON.
    named = _as_json([column.name])
    if column.kind in ("id", "constant"):
        return (f"keep={named}",)
    if not column.is_encoded:
        return ()

    drop = f"drop={named}"
    if column.kind == "category":
        as_text = _as_json({column.name: "text"})
        # If some categories are hashed, all could have their own column, and the other way round.
        option = "hash"
        if column.hashed >= 0:
            option = "one_hot"
        return (f"{option}={named}", f"as_={as_text}", drop)

    as_category = _as_json({column.name: "category"})
    has_missing = column.missing >= 0
    if column.kind == "number" and has_missing:
        return (f"as_={as_category}", "impute=0", drop)
    return (f"as_={as_category}", drop)


def _as_json(value: object) -> str:
    """Return a parameter's value as JSON, as a report shows it."""
    return json.dumps(value, ensure_ascii=False)
