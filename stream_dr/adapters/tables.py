"""Report on a table's columns, before the table is learned."""

from typing import Any

from stream_dr.batch.matrix import read_table
from stream_dr.feature_maps.column_report import TableReport, describe


def describe_table(X: Any, **options: Any) -> TableReport:
    """Describe how the feature map `table(**options)` reads columns of X.

    If the returned report is printed, it shows one line for each column.

    Raises InvalidParameter for options that are wrong for any table, and SchemaMismatch for
    columns of an unsupported type.

    Parameters
    ----------
    X : pandas, polars or Arrow table, or list of dicts
        Table to describe.
    **options
        Parameters of `table`.

    Examples
    --------
    >>> from stream_dr import describe_table
    >>> report = describe_table([{"age": 31, "city": "Bonn"}, {"age": 40, "city": "Köln"}])
    >>> [(column.name, column.taken_for) for column in report.columns]
    [('age', 'number'), ('city', 'category')]
    """
    return describe(read_table(X), options)
