"""batches: what is given to learn as Blocks: one, or one for each table that a stream hands over.

A stream is never held whole. Targets may be named by the column of X that holds them.
"""

from collections.abc import Iterator
from typing import Any

from stream_dr.errors import InvalidTargets, SchemaMismatch, did_you_mean
from stream_dr.rows.block import Block
from stream_dr.rows.frames import table_of, tables_of, type_name
from stream_dr.rows.kinds import PANDAS, Kind, kind_of


def as_block(X: Any, y: Any = None, weights: Any = None) -> Block:
    """X with targets and weights, as they are given; X may be a Block, whose own count where none are given."""
    block = X if isinstance(X, Block) else Block(X)
    if y is None and weights is None:
        return block
    return block._replace(y=block.y if y is None else y, weights=block.weights if weights is None else weights)


def batches(given: Block) -> Iterator[Block]:
    """The Blocks of a stream's batches, or the given one; targets apart from the rows.

    A stream's empty batches are left out, as long as there are others. Raises InvalidTargets where a stream's targets are
    no column of its own, SchemaMismatch where there is no such column.
    """
    X, y = given.X, given.y
    if kind_of(X) is not Kind.STREAM:
        yield split(given)
        return
    if y is not None and not isinstance(y, str):
        raise InvalidTargets(
            f"X is a {type_name(X)}, read batch by batch, and y a {type_name(y)}: name the column of X that holds the "
            "targets."
        )

    empty, some = None, False
    for table in tables_of(X):
        block = split(given._replace(X=table))
        if table.num_rows:
            some = True
            yield block
        else:
            empty = block
    if empty is not None and not some:
        yield empty


def split(given: Block) -> Block:
    """The block as it is unless its targets are the name of a column of the table X: then the table without it, and the
    column. Raises SchemaMismatch where there is no such column."""
    X, y = given.X, given.y
    if not isinstance(y, str):
        return given

    pandas = kind_of(X) in PANDAS
    table = X if pandas else table_of(X)
    if table is None:
        return given
    columns = list(table.columns) if pandas else table.column_names
    if y not in columns:
        raise SchemaMismatch(
            f"X has no column {y!r} for the targets{did_you_mean(y, columns)}; it has {columns[:10]}.", column=y
        )
    return given._replace(X=table.drop(columns=y) if pandas else table.drop_columns([y]), y=table[y])
