"""FeatureMap, the base class of all feature maps."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from stream_dr.rows.block import Block, Rows


@dataclass(frozen=True)
class FeatureMap(ABC):
    """Parameters of a feature map, and methods that map rows.

    A map without running statistics also has `apply(X, n_stream_features, names)`, which returns
    the mapped rows (rows, mapped columns) of rows X, dense or CSR. `n_stream_features` is the
    number of features of the stream so far. `names` are the names of the columns, or None.

    Attributes
    ----------
    by_name : bool
        True if columns are matched by name, so that batches may have different columns.
    sparse : bool
        True if mapped rows are CSR.
    learns : bool
        True if the map has running statistics. Rows are then passed as RawRows to table.py, which
        maps them.
    """

    by_name: ClassVar[bool] = False
    sparse: ClassVar[bool] = False
    learns: ClassVar[bool] = False

    @property
    def first_row_fixes_n_features(self) -> bool:
        """True if the first row fixes the number of features."""
        return False

    @property
    def has_final_parameters(self) -> bool:
        """True if all parameters of the map are final.

        False if a parameter is computed from the first batch.
        """
        return True

    def with_first_batch_parameters(self, block: Block) -> "FeatureMap":
        """Return the map with its final parameters.

        Parameters without a value are computed from the first batch.

        block: the first batch.
        """
        return self

    def warn_if_unsuitable(self, X: Rows) -> None:  # noqa: B027
        """Warn if the map does not suit the data.

        X: (rows, features), the first rows of the stream.
        """

    def could_become_after_batch(self, other: "FeatureMap") -> bool:
        """Return True if this map can become `other`.

        After the first batch, `decided` replaces a map by a map with final parameters. So the two
        maps may differ only in parameters that are computed from the first batch.

        other: a map with final parameters.
        """
        return False

    @abstractmethod
    def max_mapped_columns(self, n_input_columns: int) -> int:
        """Return the largest number of columns of mapped rows.

        n_input_columns: number of features of the rows before mapping, 0 if unknown.
        """

    @abstractmethod
    def check(self) -> None:
        """Raise InvalidParameter if a parameter is outside its range."""

    @abstractmethod
    def bytes(self, n_input_columns: int) -> int:
        """Return the memory of the feature map in bytes.

        The memory of the rows is not counted.

        n_input_columns: number of features of the rows before mapping.
        """
