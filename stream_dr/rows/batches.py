"""Division of a caller's input into batches.

The input is one batch or a stream of tables. One table of a stream is in memory at a time. The
targets may be a column of the input X.
"""

from collections.abc import Iterator
from typing import Any

from stream_dr.errors import InvalidTargets, SchemaMismatch, did_you_mean
from stream_dr.rows.block import Block
from stream_dr.rows.frames import TableStream, as_table, is_dask, is_pandas, open_rows, type_name
from stream_dr.rows.raw_rows import repeated_name_error


def as_block(X: Any, y: Any = None, weights: Any = None) -> Block:
    """Return rows, targets and weights as one Block, with opened rows.

    X: rows of any kind, or a Block.
    y: targets. If None and X is a Block, the block's own targets are used.
    weights: weights of the rows. If None and X is a Block, the block's own weights are used.
    """
    if not isinstance(X, Block):
        return Block(open_rows(X), y, weights)
    y = X.y if y is None else y
    weights = X.weights if weights is None else weights
    return X._replace(X=open_rows(X.X), y=y, weights=weights)


def batches(block: Block) -> Iterator[Block]:
    """Yield the batches of a block with opened rows.

    The rows of the block may be a stream of tables, which has one batch for each table. A block
    with other rows is one batch. If the block's `y` is the name of a column of X, this column
    becomes the targets. Empty batches of a stream are skipped. If all batches of a stream are
    empty, the result is one empty batch.

    Raises InvalidTargets if the `y` of a stream is neither None nor a string. Raises
    SchemaMismatch if X has no column named `y`.
    """
    if not isinstance(block.X, TableStream):
        yield move_named_column_to_targets(block)
        return
    if block.y is not None and not isinstance(block.y, str):
        raise InvalidTargets(
            f"X is a {type_name(block.X.source)}, read batch by batch, and y a {type_name(block.y)}: name the column of "
            "X that holds the targets."
        )

    batch = None
    any_rows = False
    for table in block.X:
        batch = move_named_column_to_targets(block._replace(X=table))
        if table.num_rows:
            any_rows = True
            yield batch

    # If all batches are empty, yield one of them, because its columns can still be learned.
    if batch is not None and not any_rows:
        yield batch


def move_named_column_to_targets(block: Block) -> Block:
    """Return a block with the column that its `y` names as targets.

    If `y` is not a string, or X is not a table, the block is returned unchanged. Raises
    SchemaMismatch if X has no column named `y`, and InvalidRows if it has two.
    """
    y = block.y
    if not isinstance(y, str):
        return block

    # A pandas frame is not converted, because pandas itself can select and drop the column `y`.
    # Any other table becomes an Arrow table.
    pandas = is_pandas(block.X) or is_dask(block.X, "dask.dataframe")
    table = block.X if pandas else as_table(block.X)
    if table is None:
        return block

    # Move the column from the rows to the targets.
    columns = list(table.columns) if pandas else table.column_names
    if y not in columns:
        meant = did_you_mean(y, columns)
        raise SchemaMismatch(f"X has no column {y!r} for the targets{meant}; it has {columns[:10]}.", column=y)
    if repeated := repeated_name_error([name for name in columns if name == y]):
        raise repeated
    rows = table.drop(columns=y) if pandas else table.drop_columns([y])
    return block._replace(X=rows, y=table[y])


def drop_column(block: Block, name: str) -> Block:
    """Return a block whose rows lack the column of this name, if they have one.

    A stream becomes one table.
    """
    if isinstance(block.X, TableStream):
        block = block._replace(X=as_table(block.X))
    try:
        rows = move_named_column_to_targets(block._replace(y=name)).X
    except SchemaMismatch:
        return block
    return block._replace(X=rows)
