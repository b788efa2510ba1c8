"""projected_file: writes projected rows to Parquet, Arrow, CSV or npz files.

In a CSV file, a row's list of labels or of targets is written as JSON.

An npz file has the array z (rows, components). It has an array of ids and of targets too, if the
rows have them. A missing string is written as "", and a missing number as NaN.

One batch is held in memory at a time. For npz all rows are held in memory, because the file begins
with the number of rows.
"""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from stream_dr.disk import check_parent_folder_exists
from stream_dr.errors import InvalidParameter

# Suffixes of the files that can be written.
SUFFIXES = (".parquet", ".arrow", ".ipc", ".feather", ".csv", ".npz")


def check_output_path(output_path: Path) -> None:
    """Raise an error if the path `output_path` cannot be written.

    Raises InvalidParameter if the suffix is not in SUFFIXES. Raises SourceMissing if the folder
    does not exist.
    """
    if output_path.suffix not in SUFFIXES:
        raise InvalidParameter(
            f"{output_path} ends in {output_path.suffix!r}; name a .parquet, .arrow, .csv or .npz file."
        )
    check_parent_folder_exists(output_path)


def write_projected(file: BinaryIO, suffix: str, batches: Iterator[pa.RecordBatch]) -> int:
    """Write projected rows to an open file, and count them.

    suffix: suffix of the file's name, which selects the format.
    batches: Arrow batches with the columns z0, z1 … and, if the rows have ids or targets, id and
        one of label, labels and target.

    Returns the number of rows.
    """
    if suffix == ".npz":
        table = pa.Table.from_batches(batches)
        np.savez(file, allow_pickle=False, **_npz_arrays(table))
        return int(table.num_rows)

    # A CSV file has no lists, so each list is written as a JSON string.
    if suffix == ".csv":
        batches = map(_lists_to_json, batches)
    rows = 0
    first = next(batches)
    writer: pa.RecordBatchFileWriter | pq.ParquetWriter | pacsv.CSVWriter
    if suffix == ".parquet":
        writer = pq.ParquetWriter(file, first.schema)
    elif suffix == ".csv":
        writer = pacsv.CSVWriter(file, first.schema, write_options=pacsv.WriteOptions(quoting_style="needed"))
    else:
        writer = pa.ipc.new_file(file, first.schema)
    with writer:
        for batch in chain([first], batches):
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def _lists_to_json(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Replace each list in the batch by its JSON string."""
    columns = [_lists_to_json_column(column) if pa.types.is_nested(column.type) else column for column in batch.columns]
    return pa.record_batch(columns, names=batch.schema.names)


def _lists_to_json_column(lists: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column of lists as JSON strings."""
    return pa.array([None if v is None else orjson.dumps(v).decode() for v in lists.to_pylist()], pa.string())


def _npz_arrays(table: pa.Table) -> dict[str, np.ndarray]:
    """Return the arrays of an npz file by name.

    The columns z0, z1 … become one array z.
    """
    components = [name for name in table.column_names if name.startswith("z")]
    z = np.empty((table.num_rows, len(components)))
    for i, name in enumerate(components):
        z[:, i] = table.column(name).to_numpy()
    return {"z": z} | {name: _column_array(table.column(name)) for name in table.column_names if name not in components}


def _column_array(column: pa.ChunkedArray) -> np.ndarray:
    """Return a column of ids or targets as an array.

    A missing number becomes NaN, and a missing string becomes "".
    """
    # A column of several numeric targets becomes a matrix.
    kind = column.type
    if pa.types.is_nested(kind) and pa.types.is_floating(kind.value_type):
        rows = column.to_pylist()
        width = max((len(row) for row in rows if row is not None), default=0)
        return np.array([[np.nan] * width if row is None else row for row in rows], float)

    # Lists of labels become JSON strings.
    if pa.types.is_nested(kind):
        column = _lists_to_json_column(column)
        kind = pa.string()
    if pa.types.is_string(kind) or pa.types.is_null(kind):
        return np.array([text or "" for text in column.to_pylist()], str)

    # numpy has no missing booleans, so booleans become numbers if some are missing.
    missing = pa.types.is_boolean(kind) and column.null_count
    return np.asarray((column.cast(pa.uint8()) if missing else column).to_numpy())
