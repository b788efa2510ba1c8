"""parquet: Parquet files decoded within the budget for reading (budget.py).

Parquet's encodings say much in few bytes: a run of one value, a text by its number in a dictionary, a text by what it shares
with the one before, and pages are compressed besides. The footer says how many values a column has and what its pages
unpack to, and so does the header of each page, which is what Arrow goes by: whichever says more counts. Texts are decoded as
dictionaries, and spelt out only where that is not too much.

Cost: O(pages) beside what Arrow takes.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

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


class _Chunk(NamedTuple):
    """A column of a row group. packed, whole: bytes of its pages as they are, and unpacked. page: of the largest, unpacked.
    shared: whether there are texts that begin as the one before."""

    name: str
    packed: int
    whole: int
    page: int
    values: int
    shared: bool

    @property
    def column(self) -> str:
        """The table's column that it is, or is a part of."""
        return self.name.partition(".")[0]


class Parquet(NamedTuple):
    """An open file, whose texts are read as dictionaries where they may be long; the schema that it says; the columns of
    each row group."""

    file: pq.ParquetFile
    schema: pa.Schema
    groups: list[list[_Chunk]]


def open_parquet(source: Any, data: pa.Buffer) -> Parquet:
    """Open a Parquet file; data: its bytes. Raises what pyarrow does of a file that is none."""
    with pq.ParquetFile(source) as plain:
        metadata, schema = plain.metadata, plain.schema_arrow
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    chunks = [
        [_chunk(group.column(n), memoryview(data).cast("B")) for n in range(group.num_columns)] for group in groups
    ]
    every = [chunk for group in chunks for chunk in group]
    long = {c.name for c in every if BLOCK_ROWS * c.whole > read_budget() // 4} - {c.name for c in every if c.shared}
    texts = [field.name for field in schema if is_spelt(field.type) and field.name in long]
    if hasattr(source, "seek"):
        source.seek(0)
    options = {"read_dictionary": texts, "pre_buffer": False, "page_checksum_verification": True}
    return Parquet(pq.ParquetFile(source, metadata=metadata, **options), schema, chunks)


def _chunk(column: Any, data: memoryview) -> _Chunk:
    """What footer and pages say of a column of a row group. Raises OSError where a page has no header."""
    start = min(column.data_page_offset, column.dictionary_page_offset or column.data_page_offset)
    try:
        sizes = list(_pages(data, start, start + column.total_compressed_size))
    except IndexError as e:
        raise OSError(f"a page of column {column.path_in_schema} has no header") from e
    whole = max(column.total_uncompressed_size, sum(size for size, _ in sizes))
    values = max(column.num_values, sum(values for _, values in sizes))
    page = max((size for size, _ in sizes), default=0)
    return _Chunk(column.path_in_schema, column.total_compressed_size, whole, page, values, _SHARED in column.encodings)


def _pages(data: memoryview, at: int, end: int) -> Iterator[tuple[int, int]]:
    """The bytes that each page unpacks to, and its values, by its header (parquet.thrift, PageHeader)."""
    while at < end:
        header, at = _thrift(data, at)
        pages = (header.get(number, {}) for number in (5, 8))  # of either version; of a dictionary's there is none
        yield header.get(2, 0), sum(page.get(1, 0) for page in pages)
        if header.get(3, 0) < 0:
            raise OSError("a page of fewer than no bytes")
        at += header.get(3, 0)


def _thrift(data: memoryview, at: int, depth: int = 3) -> tuple[dict[int, Any], int]:
    """The 32-bit numbers and structs of a struct in Thrift's compact protocol by field, and where it ends; other fields are
    passed over. Raises OSError or IndexError where there is none."""
    fields, field = dict[int, Any](), 0
    while kind := data[at]:
        field, at = field + (kind >> 4), at + 1
        if not kind >> 4:
            field, at = _varint(data, at)
            field >>= 1
        match kind & 15:
            case 1 | 2:  # a boolean, said by its kind
                pass
            case 3:
                at += 1
            case 5:
                number, at = _varint(data, at)
                fields[field] = (number & 0xFFFF_FFFF) >> 1 if number % 2 == 0 else -1  # none of ours is below zero
            case 4 | 6:
                _, at = _varint(data, at)
            case 7:
                at += 8
            case 8:
                length, at = _varint(data, at)
                at += length
            case 12 if depth:
                fields[field], at = _thrift(data, at, depth - 1)
            case other:
                raise OSError(f"a page's header with a field of type {other}")
        if field >= 1 << 15:
            raise OSError(f"a page's header with a field {field}")
    return fields, at + 1


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """A whole number of seven bits a byte, and where it ends."""
    number = 0
    for place in range(10):
        number |= (data[at + place] & 127) << (7 * place)
        if data[at + place] < 128:
            return number, at + place + 1
    raise OSError("a page's header with a number of more than ten bytes")


def is_spelt(kind: pa.DataType) -> bool:
    """Whether a type is of texts or bytes, each spelt out."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind))


def rows_at_once(parquet: Parquet, rows: int, columns: Sequence[str]) -> int:
    """The rows, at most `rows`, that may be decoded at once of these columns. Raises LimitExceeded naming a column that a
    row group has in few bytes, of which one row may take more than the budget, or one of whose pages does."""
    budget, wanted = read_budget(), set(columns)
    most = min(rows, budget // (64 * max(1, len(columns))))
    for number, group in enumerate(parquet.groups):
        for chunk in (chunk for chunk in group if chunk.column in wanted):
            whole = max(chunk.whole, 8 * chunk.values if "." in chunk.name else 0)  # of lists any one may be long
            if whole > max(budget, _PACKED * chunk.packed) or chunk.page > budget:
                raise LimitExceeded(
                    f"column {chunk.name} of row group {number} unpacks from {chunk.packed} bytes to {whole}, and a page of "
                    f"it to {chunk.page}; {allow_more()}, or write the file with smaller row groups and pages, or leave the "
                    "column out.",
                    needed=whole,
                    limit=budget,
                )
            if chunk.shared:
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


def check_group(parquet: Parquet, number: int) -> None:
    """Raise LimitExceeded for a row group that decodes to more than the budget as a whole."""
    size = sum(max(8 * chunk.values, chunk.whole) for chunk in parquet.groups[number])
    if size > read_budget():
        raise LimitExceeded(
            f"a row group of {parquet.file.metadata.row_group(number).num_rows} rows unpacks to {size} bytes; "
            f"{allow_more()}, or write the file with smaller row groups.",
            needed=size,
            limit=read_budget(),
        )
