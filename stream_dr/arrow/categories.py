"""Restore categories of Parquet files.

A column that was a dictionary in Arrow is a category. Arrow restores only dictionaries of strings.
Parquet's own dictionary encoding has no meaning.
"""

import base64
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.parquet as pq


def declared_categories(file: pq.ParquetFile) -> set[str]:
    """Return the names of columns that were dictionaries in Arrow."""
    encoded = (file.metadata.metadata or {}).get(b"ARROW:schema")
    if encoded is None:
        return set()
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(encoded)))
    return {field.name for field in schema if pa.types.is_dictionary(field.type)}


def encode_categories(batch: pa.RecordBatch, names: Iterable[str]) -> pa.RecordBatch:
    """Return a batch with the named columns as dictionaries."""
    for name in names:
        column = batch.column(name).dictionary_encode()
        batch = batch.set_column(batch.schema.get_field_index(name), name, column)
    return batch
