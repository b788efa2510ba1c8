"""Source: where refine reads the stream again, once a pass: memory, shards, a directory's log, or whatever has `events`."""

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, runtime_checkable

from stream_dr.errors import InvalidParameter
from stream_dr.rows.batches import batches
from stream_dr.rows.block import Block


@runtime_checkable
class Source(Protocol):
    """Anything that can replay a stream's events."""

    def events(self, after: int = -1, until: int | None = None) -> Iterator[tuple[int, Block]]:
        """Yield (position, Block) in ascending position, for after < position ≤ until (None: to the end)."""
        ...


class GivenBatches:
    """A Source of batches that can be iterated any number of times: Blocks, or tuples (X, y) or (X, y, weights), of
    which X may be a stream of tables that can be read again (an Arrow data set, a LazyFrame) and y its column of targets."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches = batches

    def events(self, after: int = -1, until: int | None = None) -> Iterator[tuple[int, Block]]:
        """(position, Block) of each batch; positions count from 0."""
        given = (_block(batch, number) for number, batch in enumerate(self._batches))
        for position, block in enumerate(block for whole in given for block in batches(whole)):
            if position > after and (until is None or position <= until):
                yield position, block


def _block(batch: Any, position: int) -> Block:
    if isinstance(batch, Block):
        return batch
    if isinstance(batch, tuple | list) and 0 < len(batch) <= 3:
        return Block(*batch)
    raise InvalidParameter(
        f"batch {position} of the source is of type {type(batch).__name__}; give tuples (X, y) or (X, y, weights). A single "
        "one may be given as it is, as a tuple and not a list."
    )


def as_source(given: Any) -> Source:
    """A Source of what is given: one already, (X, y) or (X, y, weights), or an iterable of these that can be read again.

    Raises InvalidParameter for anything else, a one-shot iterator among them: refine reads the stream once a pass.
    """
    if isinstance(given, Source):
        return given
    if isinstance(given, tuple) and 0 < len(given) <= 3 and not isinstance(given[0], tuple | Block):
        if not isinstance(given[0], Iterator):
            return GivenBatches([given])
        given = given[0]
    if isinstance(given, Iterator):
        raise InvalidParameter(
            f"source is a {type(given).__name__}, which can be read once, and refine reads the stream once a pass. Give a "
            "list of its batches, or an object with events(after=-1, until=None)."
        )
    if isinstance(given, Iterable) and not (isinstance(given, str | bytes | dict) or hasattr(given, "shape")):
        return GivenBatches(given)
    raise InvalidParameter(
        f"source is of type {type(given).__name__}; give (X, y), an iterable of (X, y), or an object whose events(after=-1, "
        "until=None) yields (position, stream_dr.Block(X, y, weights)) of the rows learned, anew at every call."
    )
