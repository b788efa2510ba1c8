"""Hashing of named features to a fixed number of columns.

Features are hashed as by scikit-learn's FeatureHasher (Weinberger 2009). A hash (MurmurHash3) of a
feature's name gives the feature's column and sign. No vocabulary is stored, and new names may
appear at any time.

Rows may be dicts as in river, tables with named columns, or plain columns, which are named "0",
"1" … In a dict such as {"price": 1.2, "colour": "red"}, a string value v of feature f becomes the
feature "f=v" with value 1. A bool becomes 0 or 1.

Cost per row: O(nonzeros), and a hash for each name that is not in the cache. The map has no state.

The signs are random, so the errors of features that share a column cancel on average. The default
of 4,096 columns is the largest number for which the whole scatter matrix is stored.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from stream_dr.batch.block import Rows
from stream_dr.errors import InvalidParameter, InvalidRows
from stream_dr.feature_maps.feature_map import FeatureMap, is_integer_within


@dataclass(frozen=True)
class Hashing(FeatureMap):
    """Map that hashes named features to a fixed number of columns.

    Attributes
    ----------
    n_features : int
        Number of columns of mapped rows.
    alternate_sign : bool
        True if the hash of a feature's name also gives the feature's sign. False if all signs are
        positive.
    """

    n_features: int = 4096
    alternate_sign: bool = True

    by_name: ClassVar[bool] = True
    sparse: ClassVar[bool] = True

    def max_mapped_columns(self, n_input_columns: int) -> int:
        """Return `n_features`, the map's number of columns for rows of any width."""
        return self.n_features

    def check(self) -> None:
        """Raise InvalidParameter if a parameter is outside its range."""
        n = self.n_features
        if not is_integer_within(n, 1, 2**31 - 1):
            raise InvalidParameter(f"n_features={n!r} of hashing; it must be an integer ≥ 1 and below 2³¹.")
        if not isinstance(self.alternate_sign, bool):
            raise InvalidParameter(f"alternate_sign={self.alternate_sign!r} of hashing; it must be a bool.")

    def apply(self, X: Rows, n_stream_features: int, names: tuple[str, ...] | None = None) -> sp.csr_matrix:
        """Return hashed rows (rows, n_features), CSR float64.

        X: (rows, features), dense or CSR.
        n_stream_features: not used.
        names: names of the columns of X. If None, the names are the numbers of the columns.
        """
        X = sp.csr_matrix(X).astype(np.float64)
        # There may be millions of unnamed columns, so only columns with values are hashed.
        # Names are mostly the same in every batch, so the matrix that hashes them is cached.
        if names is None:
            used, indices = np.unique(X.indices, return_inverse=True)
            X = sp.csr_matrix((X.data, indices, X.indptr), shape=(X.shape[0], len(used)))
            numbers = map(str, used.tolist())
            hashing_matrix = _name_hashing_matrix(self, numbers)
        else:
            hashing_matrix = cached_name_hashing_matrix(self, tuple(names))
        hashed = sp.csr_matrix(X @ hashing_matrix)
        hashed.sum_duplicates()
        return hashed

    def bytes(self, n_input_columns: int) -> int:
        """Return an estimate of the map's memory in bytes.

        The estimate is 12 bytes for each feature.

        n_input_columns: number of features of the rows before hashing.
        """
        return 12 * n_input_columns


def _name_hashing_matrix(hashing: Hashing, names: Iterable[str]) -> sp.csr_matrix:
    """Return the matrix by which rows are multiplied to hash them.

    The matrix is CSR (names, hashing.n_features). The row of a name has 1 or −1 in the column to
    which the name is hashed.

    hashing: the map.
    names: names of the features.
    """
    from sklearn.feature_extraction import FeatureHasher

    hasher = FeatureHasher(hashing.n_features, input_type="string", alternate_sign=hashing.alternate_sign)
    # FeatureHasher hashes lists of words, at least one list. Each name is a list of one word.
    words = [[name] for name in names]
    if words:
        return hasher.transform(words).tocsr()
    return sp.csr_matrix((0, hashing.n_features))


cached_name_hashing_matrix = lru_cache(maxsize=64)(_name_hashing_matrix)
"""`_name_hashing_matrix` with a cache, for column names that are the same in every batch."""


def dicts_to_sparse_rows(dicts: Sequence[Mapping[Hashable, Any]]) -> tuple[sp.csr_matrix, tuple[str, ...]]:
    """Return dicts as sparse rows, and their columns' names.

    The rows are CSR (rows, names) float64. The names are in order of first appearance. A bool
    becomes 0 or 1. A string value v of feature f becomes the feature "f=v" with value 1. Raises
    InvalidRows.
    """
    # `column_of` has the column of each name so far. The other lists are the arrays of a CSR
    # matrix.
    column_of: dict[str, int] = {}
    indptr = [0]
    indices: list[int] = []
    values: list[float] = []
    for i, row in enumerate(dicts):
        for key, item in row.items():
            name = str(key)
            value = item
            if isinstance(item, str):
                name = f"{key}={item}"
                value = 1.0
            try:
                number = float(value)
            except (TypeError, ValueError) as e:
                raise InvalidRows(
                    f"row {i}, feature {key!r} is {value!r}; values must be numbers, strings or bools."
                ) from e
            column = column_of.setdefault(name, len(column_of))
            indices.append(column)
            values.append(number)
        indptr.append(len(indices))

    # A row may have a column twice, because different keys (1 and "1") may have one name.
    data = np.asarray(values, dtype=np.float64)
    matrix = sp.csr_matrix((data, indices, indptr), shape=(len(dicts), len(column_of)))
    matrix.sum_duplicates()
    return matrix, tuple(column_of)
