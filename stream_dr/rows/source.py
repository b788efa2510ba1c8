"""Sources that yield a stream's batches for every `refine` pass.

`refine` makes an approximate solution exact by passes over the rows. A source may be data in
memory, shards, a directory's log, or any object with a method `events`.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, runtime_checkable

from stream_dr.errors import InvalidParameter
from stream_dr.rows.batches import as_block, batches
from stream_dr.rows.block import Block
from stream_dr.rows.interfaces import Shaped

Batch = Block | tuple[Any, ...] | list[Any]
"""A batch as a caller passes it: a Block, (X, y) or (X, y, weights)."""


@runtime_checkable
class Source(Protocol):
    """Object that yields a stream's batches any number of times."""

    def events(self, after: int = -1, until: int | None = None) -> Iterator[tuple[int, Block]]:
        """Yield (position, Block) for batches in a range of positions.

        Positions are in ascending order.

        after: position before the first batch to yield. −1 yields from the first batch on.
        until: position of the last batch to yield. None yields up to the last batch.
        """
        ...


class RepeatableBatches:
    """Source of batches from an iterable that can be read repeatedly.

    A batch is a Block, (X, y) or (X, y, weights). X may also be a stream of tables that can be
    read again, such as an Arrow data set or a LazyFrame. For a stream of tables, y is the name of
    the column of targets.
    """

    def __init__(self, batches: Iterable[Batch]) -> None:
        self._batches = batches

    def events(self, after: int = -1, until: int | None = None) -> Iterator[tuple[int, Block]]:
        """Yield (position, Block) for batches in a range of positions.

        The first batch of the source has the position 0.

        after: position before the first batch to yield.
        until: position of the last batch to yield. None yields up to the last batch.
        """
        blocks = (_batch_as_block(batch, number) for number, batch in enumerate(self._batches))
        for position, block in enumerate(part for whole in blocks for part in batches(whole)):
            if position > after and (until is None or position <= until):
                yield position, block


def _batch_as_block(batch: Batch, position: int) -> Block:
    """Return a batch as a Block.

    position: position of the batch, for the error message.

    Raises InvalidParameter unless the batch is a Block or a tuple or list (X, y, weights).
    """
    if isinstance(batch, Block):
        return as_block(batch)
    if isinstance(batch, tuple | list) and 0 < len(batch) <= 3:
        return as_block(*batch)
    raise InvalidParameter(
        f"batch {position} of the source is of type {type(batch).__name__}; give tuples (X, y) or (X, y, weights). A single "
        "one may be given as it is, as a tuple and not a list."
    )


def as_source(source: object) -> Source:
    """Return data as a Source for repeated passes.

    source: a Source, one batch as a tuple (X, y) or (X, y, weights), or an iterable of batches
        that can be read again.

    Raises InvalidParameter for other objects. An iterator is refused, because it can be read only
    once.
    """
    if isinstance(source, Source):
        return source

    if isinstance(source, tuple) and 0 < len(source) <= 3 and not isinstance(source[0], tuple | Block):
        # A tuple is one batch. If its X is an iterator, the error below names the iterator.
        if not isinstance(source[0], Iterator):
            return RepeatableBatches([source])
        source = source[0]
    if isinstance(source, Iterator):
        raise InvalidParameter(
            f"source is a {type(source).__name__}, which can be read once, and refine reads the stream once a pass. Give a "
            "list of its batches, or an object with events(after=-1, until=None)."
        )

    if isinstance(source, Iterable) and not isinstance(source, str | bytes | dict | Shaped):
        return RepeatableBatches(source)
    raise InvalidParameter(
        f"source is of type {type(source).__name__}; give (X, y), an iterable of (X, y), or an object whose events("
        "after=-1, until=None) yields (position, stream_dr.Block(X, y, weights)) of the rows learned, anew at every call."
    )
