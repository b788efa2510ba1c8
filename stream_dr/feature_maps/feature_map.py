"""FeatureMap, the base class of all feature maps."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from stream_dr.rows.block import Block, Rows


@dataclass(frozen=True)
class FeatureMap(ABC):
    """Parameters of a feature map, and the mapping of rows.

    A map without statistics has `apply(X, width, names)`, too. It returns the mapped rows (rows,
    out_features) of rows X, dense or CSR. `width` is the number of features of the stream so far,
    and `names` are the names of the columns, if any.

    Attributes
    ----------
    by_name : bool
        True if columns are matched by name, so that batches may have different columns.
    sparse : bool
        True if mapped rows are CSR.
    learns : bool
        True if the map has running statistics and takes RawRows, which table.py maps.
    """

    by_name: ClassVar[bool] = False
    sparse: ClassVar[bool] = False
    learns: ClassVar[bool] = False

    @property
    def fixed_width(self) -> bool:
        """True if the number of features is fixed by the first row."""
        return False

    @property
    def settled(self) -> bool:
        """True if no parameter remains for the first batch to decide."""
        return True

    def decided(self, block: Block) -> "FeatureMap":
        """Return the map with the parameters that the first batch decides."""
        return self

    def warn_if_unsuitable(self, X: Rows) -> None:  # noqa: B027
        """Warn if the map does not suit the first rows X (rows, features)."""

    def is_decided_as(self, other: "FeatureMap") -> bool:
        """Return True if `other` is this map after the first batch decided its parameters."""
        return False

    @abstractmethod
    def out_features(self, width: int) -> int:
        """Return the maximum number of columns of mapped rows.

        width: number of features, 0 if unknown.
        """

    @abstractmethod
    def check(self) -> None:
        """Raise InvalidParameter if a value is outside its range."""

    @abstractmethod
    def bytes(self, width: int) -> int:
        """Return the number of bytes that the map itself uses for rows of this width."""
