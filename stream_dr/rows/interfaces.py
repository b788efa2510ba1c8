"""Interfaces of tables of other libraries.

These protocols recognise a table without importing its library. isinstance only checks that an
object has the attributes of a protocol.
"""

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

import numpy as np


@runtime_checkable
class ArrowStream(Protocol):
    """Table that can be read through Arrow's C stream interface."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the data as a capsule with a C stream."""


@runtime_checkable
class ArrowArray(Protocol):
    """Table or column with Arrow's C array interface."""

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        """Return the data as capsules with a C array."""


@runtime_checkable
class ArrowScanner(Protocol):
    """Arrow data set or scanner."""

    def to_batches(self) -> Iterable[object]:
        """Return the record batches, one after the other."""

    def count_rows(self) -> int:
        """Return the number of rows."""


@runtime_checkable
class LazyBatches(Protocol):
    """Lazy frame that computes its rows batch by batch."""

    def collect_batches(self) -> Iterable[object]:
        """Return the rows as batches, one after the other."""


@runtime_checkable
class Shaped(Protocol):
    """Array or table with a known shape."""

    shape: tuple[int, ...]


@runtime_checkable
class NumpyArrayLike(Protocol):
    """Object that numpy converts to an array."""

    def __array__(self) -> np.ndarray:
        """Return the object as a numpy array."""


@runtime_checkable
class NumpyConvertible(Protocol):
    """Column or table with a method that returns a numpy array."""

    def to_numpy(self) -> np.ndarray:
        """Return the values as a numpy array."""
