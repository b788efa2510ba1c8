"""Sources from which refine reads the stream again, once per pass.

A source may be data in memory, shards, a directory's log, or any object with `events`.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, runtime_checkable

from stream_dr.errors import InvalidParameter
from stream_dr.rows.batches import batches
from stream_dr.rows.block import Block
from stream_dr.rows.interfaces import Shaped

Batch = Block | tuple[Any, ...] | list[Any]
"""Block, or (X, y) or (X, y, weights)."""


@runtime_checkable
class Source(Protocol):
    """Object that can replay the events of a stream."""

    def events(self, after: int = -1, until: int | None = None) -> Iterator[tuple[int, Block]]:
        """Yield (position, Block) in ascending order of position, for after < position ≤ until.

        until: None for all up to the end.
        """
        ...


class GivenBatches:
    """Source of batches that can be iterated any number of times.

    A batch is a Block, (X, y) or (X, y, weights). X may be a stream of tables that can be read
    again, such as an Arrow data set or a LazyFrame, and y the name of its column of targets.
    """

    def __init__(self, batches: Iterable[Batch]) -> None:
        self._batches = batches

    def events(self, after: int = -1, until: int | None = None) -> Iterator[tuple[int, Block]]:
        """Yield (position, Block) of each batch, with positions from 0."""
        blocks = (_as_block(batch, number) for number, batch in enumerate(self._batches))
        for position, block in enumerate(part for whole in blocks for part in batches(whole)):
            if position > after and (until is None or position <= until):
                yield position, block


def _as_block(batch: Batch, position: int) -> Block:
    """Return a batch as a Block, or raise InvalidParameter."""
    if isinstance(batch, Block):
        return batch
    if isinstance(batch, tuple | list) and 0 < len(batch) <= 3:
        return Block(*batch)
    raise InvalidParameter(
        f"batch {position} of the source is of type {type(batch).__name__}; give tuples (X, y) or (X, y, weights). A single "
        "one may be given as it is, as a tuple and not a list."
    )


def as_source(source: object) -> Source:
    """Return a Source of what a caller passes.

    source: a Source, (X, y) or (X, y, weights), or an iterable of these that can be read again.

    Raises InvalidParameter for anything else. A one-shot iterator is refused, since refine reads the
    stream once per pass.
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
