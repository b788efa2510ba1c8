"""FeatureMap: what every map offers, with what most of them are."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class FeatureMap(ABC):
    """A map's parameters, and what it makes of rows. A map without statistics has `apply(X, width, names)` as well:
    mapped rows (rows, out_features) of rows X, dense or CSR, of a stream that has so many features so far; names: the
    columns', where rows are named.

    by_name: whether columns are told
    apart by name, so that every batch may have others. sparse: whether mapped rows are CSR. learns: whether it has
    running statistics: it takes a table's columns, and table.py maps them.
    """

    by_name: ClassVar[bool] = False
    sparse: ClassVar[bool] = False
    learns: ClassVar[bool] = False

    @property
    def fixed_width(self) -> bool:
        """Whether the features' number must be known at the first row and stay."""
        return False

    @property
    def settled(self) -> bool:
        """Whether all parameters are numbers and words, none to be decided by the first batch."""
        return True

    def decided(self, block: Any) -> "FeatureMap":
        """Return the map with the parameters that the first batch decides."""
        return self

    def warn_of(self, X: Any) -> None:  # noqa: B027  # most maps suit all rows
        """Warn if the map does not suit the first rows X (rows, features)."""

    def became(self, other: "FeatureMap") -> bool:
        """Whether `other` is this map with what was left to the first batch decided."""
        return False

    @abstractmethod
    def out_features(self, width: int) -> int:
        """Columns of the mapped rows, at most, of rows so wide."""

    @abstractmethod
    def check(self) -> None:
        """Raise InvalidParameter when a value is outside its range."""

    @abstractmethod
    def bytes(self, width: int) -> int:
        """Memory the map itself takes for rows of this width."""
