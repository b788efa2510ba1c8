"""Source: where refine reads the stream again.

Why this way: the numerics of refine do not know whether rows come from memory, from shards or from a directory's log;
anything with this one method will do.
"""

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from stream_dr.block import Block


@runtime_checkable
class Source(Protocol):
    """Anything that can replay a stream's events."""

    def events(self, after: int = -1, until: int | None = None) -> Iterator[tuple[int, Block]]:
        """Yield (position, Block) in ascending position, for after < position ≤ until (None: to the end)."""
        ...
