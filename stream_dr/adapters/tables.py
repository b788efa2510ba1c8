"""tables: what a table of any library holds, told before it is learned."""

from typing import Any

from stream_dr.feature_maps.report import TableReport, describe
from stream_dr.rows.table_rows import raw_rows


def describe_table(X: Any, **options: Any) -> TableReport:
    """What `table(**options)` would make of X's columns: a pandas, polars or Arrow table, or rows that are dicts.

    `print` shows a line a column. Raises InvalidParameter for options that no table could do with, and SchemaMismatch for
    columns of a type that is not taken.
    """
    return describe(raw_rows(X), options)
