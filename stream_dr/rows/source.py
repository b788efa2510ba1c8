"""Sources that yield a stream's batches again for each pass of a refine.

A source may be data in memory, shards, a directory's log, or any object with a method `events`.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, runtime_checkable

from stream_dr.errors import InvalidParameter
from stream_dr.rows.batches import batches
from stream_dr.rows.block import Block
from stream_dr.rows.interfaces import Shaped

Batch = Block | tuple[Any, ...] | list[Any]
"""A batch as a caller passes it: a Block, (X, y) or (X, y, weights)."""


@runtime_checkable
class Source(Protocol):
    """Object that can yield the batches of a stream any number of times."""

    def events(self, after: int = -1, until: int | None = None) -> Iterator[tuple[int, Block]]:
        """Yield (position, Block) for the batches after one position, up to another.

        Positions are in ascending order.

        after: position after which to begin.
        until: last position. If None, all later batches are yielded.
        """
        ...


class GivenBatches:
    """Source of batches that a caller passes and that can be iterated any number of times.

    A batch is a Block, (X, y) or (X, y, weights). X may also be a stream of tables that can be
    read again, such as an Arrow data set or a LazyFrame. Then y is the name of the column of
    targets.
    """

    def __init__(self, batches: Iterable[Batch]) -> None:
        self._batches = batches

    def events(self, after: int = -1, until: int | None = None) -> Iterator[tuple[int, Block]]:
        """Yield (position, Block) for the batches after one position, up to another.

        The first batch has the position 0.
        """
        blocks = (_as_block(batch, number) for number, batch in enumerate(self._batches))
        for position, block in enumerate(part for whole in blocks for part in batches(whole)):
            if position > after and (until is None or position <= until):
                yield position, block


def _as_block(batch: Batch, position: int) -> Block:
    """Return a batch as a Block. Raises InvalidParameter.

    position: position of the batch, for the error message.
    """
    if isinstance(batch, Block):
        return batch
    if isinstance(batch, tuple | list) and 0 < len(batch) <= 3:
        return Block(*batch)
    raise InvalidParameter(
        f"batch {position} of the source is of type {type(batch).__name__}; give tuples (X, y) or (X, y, weights). A single "
        "one may be given as it is, as a tuple and not a list."
    )


def as_source(source: object) -> Source:
    """Return a Source of the data that a caller passes.

    Raises InvalidParameter for other objects. An iterator is also refused, because it can be read
    only once, and refine reads the stream once in each pass.

    source: a Source, (X, y) or (X, y, weights), or an iterable of these that can be read again.
    """
    if isinstance(source, Source):
        return source

    if isinstance(source, tuple) and 0 < len(source) <= 3 and not isinstance(source[0], tuple | Block):
        if not isinstance(source[0], Iterator):
            return GivenBatches([source])
        source = source[0]
    if isinstance(source, Iterator):
        raise InvalidParameter(
            f"source is a {type(source).__name__}, which can be read once, and refine reads the stream once a pass. Give a "
            "list of its batches, or an object with events(after=-1, until=None)."
        )

    if isinstance(source, Iterable) and not isinstance(source, str | bytes | dict | Shaped):
        return GivenBatches(source)
    raise InvalidParameter(
        f"source is of type {type(source).__name__}; give (X, y), an iterable of (X, y), or an object whose events("
        "after=-1, until=None) yields (position, stream_dr.Block(X, y, weights)) of the rows learned, anew at every call."
    )
