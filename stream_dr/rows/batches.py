"""Division of a caller's input into batches.

The input is one batch or a stream of tables. One table of a stream is in memory at a time. The
targets may be a column of the input X.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from stream_dr.errors import InvalidTargets, SchemaMismatch, did_you_mean
from stream_dr.rows.block import Block
from stream_dr.rows.frames import as_table, iterate_arrow_tables, type_name
from stream_dr.rows.kinds import PANDAS, Kind, rows_kind


def as_block(X: object, y: Any = None, weights: Any = None) -> Block:
    """Return rows, targets and weights as one Block.

    X: rows of any kind, or a Block.
    y: targets. If None and X is a Block, the block's own targets are used.
    weights: weights of the rows. If None and X is a Block, the block's own weights are used.
    """
    if not isinstance(X, Block):
        return Block(X, y, weights)
    if y is None and weights is None:
        return X
    return X._replace(y=X.y if y is None else y, weights=X.weights if weights is None else weights)


def batches(block: Block, kind: Kind | None = None) -> Iterable[Block]:
    """Return the batches of a block.

    The rows of the block may be a stream of tables, which has one batch for each table. A block
    with other rows is one batch. If the block's `y` is the name of a column of X, this column
    becomes the targets. Empty batches of a stream are skipped. If all batches of a stream are
    empty, the result is one empty batch.

    block: block whose `y` may be the name of a column of X.
    kind: kind of the block's X as `rows_kind` returns it. If None, `rows_kind` is called.

    Raises InvalidTargets if the `y` of a stream is neither None nor a string. Raises
    SchemaMismatch if X has no column named `y`.
    """
    kind = kind or rows_kind(block.X)
    if kind is not Kind.STREAM:
        return [move_named_column_to_targets(block, kind)]
    if block.y is not None and not isinstance(block.y, str):
        raise InvalidTargets(
            f"X is a {type_name(block.X)}, read batch by batch, and y a {type_name(block.y)}: name the column of X that "
            "holds the targets."
        )
    return _stream_batches(block)


def _stream_batches(block: Block) -> Iterator[Block]:
    empty = None
    any_rows = False
    for table in iterate_arrow_tables(block.X):
        batch = move_named_column_to_targets(block._replace(X=table), Kind.TABLE)
        if table.num_rows:
            any_rows = True
            yield batch
        else:
            empty = batch

    # If all batches are empty, yield one of them, because its columns can still be learned.
    if empty is not None and not any_rows:
        yield empty


def move_named_column_to_targets(block: Block, rows_kind_if_known: Kind | None = None) -> Block:
    """Return a block with the column that its `y` names as targets.

    If `y` is not a string, or X is not a table, the block is returned unchanged. Raises
    SchemaMismatch if X has no column named `y`.

    rows_kind_if_known: kind of the block's X as `rows_kind` returns it. If None, `rows_kind` is
        called.
    """
    X = block.X
    y = block.y
    if not isinstance(y, str):
        return block

    # A pandas frame is not converted, because pandas itself can select and drop the column `y`.
    # Any other table becomes an Arrow table.
    rows_kind_if_known = rows_kind_if_known or rows_kind(X)
    pandas = rows_kind_if_known in PANDAS
    table = X if pandas else as_table(X, rows_kind_if_known)
    if table is None:
        return block

    # Move the column from the rows to the targets.
    columns = list(table.columns) if pandas else table.column_names
    if y not in columns:
        meant = did_you_mean(y, columns)
        raise SchemaMismatch(f"X has no column {y!r} for the targets{meant}; it has {columns[:10]}.", column=y)
    rows = table.drop(columns=y) if pandas else table.drop_columns([y])
    return block._replace(X=rows, y=table[y])


def drop_column(X: Any, name: str) -> Any:
    """Return a table without the column of this name.

    Any X without exactly one such column is returned unchanged, but a stream becomes one table.
    """
    kind = rows_kind(X)
    if kind is Kind.STREAM:
        X = as_table(X, kind)
        kind = Kind.TABLE
    if kind in PANDAS:
        return X.drop(columns=name) if X.ndim == 2 and list(X.columns).count(name) == 1 else X
    table = as_table(X, kind)
    if table is None or table.column_names.count(name) != 1:
        return X
    return table.drop_columns([name])
