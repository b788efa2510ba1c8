"""parquet: Parquet files decoded within the budget for reading (budget.py).

Parquet's encodings say much in few bytes: a run of one value, a text by its number in a dictionary, a text by what it shares
with the one before, and pages are compressed besides. The footer says how many values a column has and what its pages
unpack to; texts are decoded as dictionaries, and spelt out only where that is not too much.

Cost: O(row groups · columns) beside what Arrow takes.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from stream_dr.budget import allow_more, read_budget
from stream_dr.errors import LimitExceeded

_PACKED = 64
"""Times that pages, or values, may be larger unpacked where they pass the budget."""

BLOCK_ROWS = 1_000
"""Rows that are read at once, as long as they are not too many bytes."""

_SHARED = "DELTA_BYTE_ARRAY"
"""The encoding in which a text begins as the one before it; Arrow reads no dictionary of it."""


def open_parquet(source: Any) -> tuple[pq.ParquetFile, pa.Schema]:
    """A Parquet file whose texts are read as dictionaries, where they may be long, and the schema that it says.

    Raises what pyarrow does of a file that is none.
    """
    with pq.ParquetFile(source) as plain:
        metadata, schema = plain.metadata, plain.schema_arrow
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    columns = [group.column(place) for group in groups for place in range(group.num_columns)]
    shared = {column.path_in_schema for column in columns if _SHARED in column.encodings}
    long = {c.path_in_schema for c in columns if BLOCK_ROWS * c.total_uncompressed_size > read_budget() // 4} - shared
    texts = [field.name for field in schema if is_spelt(field.type) and field.name in long]
    if hasattr(source, "seek"):
        source.seek(0)
    options = {"read_dictionary": texts, "pre_buffer": False, "page_checksum_verification": True}
    return pq.ParquetFile(source, metadata=metadata, **options), schema


def is_spelt(kind: pa.DataType) -> bool:
    """Whether a type is of texts or bytes, each spelt out."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind))


def rows_at_once(file: pq.ParquetFile, rows: int, columns: Sequence[str]) -> int:
    """The rows, at most `rows`, that may be decoded at once of these columns. Raises LimitExceeded naming a column that a
    row group has in few bytes, of which one row may take more than the budget."""
    budget, wanted = read_budget(), set(columns)
    most = min(rows, budget // (64 * max(1, len(columns))))
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        for place in range(group.num_columns):
            column = group.column(place)
            if column.path_in_schema.partition(".")[0] not in wanted:
                continue
            packed, whole = column.total_compressed_size, column.total_uncompressed_size
            whole = max(
                whole, 8 * column.num_values if "." in column.path_in_schema else 0
            )  # of lists any one may be long
            if whole > max(budget, _PACKED * packed):
                raise LimitExceeded(
                    f"column {column.path_in_schema} of row group {number} unpacks from {packed} bytes to {whole}; "
                    f"{allow_more()}, or write the file with smaller row groups, or leave the column out.",
                    needed=whole,
                    limit=budget,
                )
            if _SHARED in column.encodings:
                most = min(most, budget // max(1, 8 * whole))
    return max(1, most)


def spelt_out(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with texts spelt out that `schema` has so. Raises LimitExceeded where they would pass the budget."""
    size = 0
    for number, field in enumerate(batch.schema):
        column = batch.column(number)
        if not pa.types.is_dictionary(field.type) or not is_spelt(field.type.value_type):
            continue
        lengths = pc.binary_length(column.dictionary).take(column.indices)
        size += pc.sum(lengths).as_py() or 0
        if size > read_budget() // 4:
            raise LimitExceeded(
                f"the texts up to column {field.name} in {batch.num_rows} rows have {size} bytes, and may have a fourth of "
                f"the budget; {allow_more()}, or leave the column out.",
                needed=4 * size,
                limit=read_budget(),
            )
        wanted = schema.field(field.name).type
        if is_spelt(wanted):
            batch = batch.set_column(number, field.name, column.cast(wanted))
    return batch


def check_group(group: Any, names: Iterable[str]) -> None:
    """Raise LimitExceeded for a row group that decodes to more than the budget as a whole."""
    wanted = set(names)
    size = 0
    for place in range(group.num_columns):
        column = group.column(place)
        if column.path_in_schema.partition(".")[0] in wanted:
            size += max(8 * column.num_values, column.total_uncompressed_size)
    if size > read_budget():
        raise LimitExceeded(
            f"a row group of {group.num_rows} rows unpacks to {size} bytes; {allow_more()}, or write the file with smaller "
            "row groups.",
            needed=size,
            limit=read_budget(),
        )
