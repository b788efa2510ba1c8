"""hashing: named features of any number to a fixed number of columns, by scikit-learn's FeatureHasher (Weinberger
2009).

A feature's column and sign are a hash (MurmurHash3) of its name, so no vocabulary is kept and new names may come at
any time. Rows may be dicts as river has them ({"price": 1.2, "colour": "red"}; a string value v of feature f is the
feature "f=v" with value 1, a bool is 0 or 1), tables with named columns, or plain columns, whose names then are "0",
"1" …

Cost a row: O(entries), and a hash for each name not met lately; memory of the map: none to speak of.

Why this way: with signs, two features that fall into one column cancel on average instead of adding up, and inner
products are right on average. The default of 4,096 columns is the widest whose whole scatter is kept.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from stream_dr.errors import InvalidParameter, InvalidRows
from stream_dr.feature_maps.feature_map import FeatureMap


@dataclass(frozen=True)
class Hashing(FeatureMap):
    """Feature hashing.

    n_features: columns. alternate_sign: hash a sign too.
    """

    n_features: int = 4096
    alternate_sign: bool = True

    by_name: ClassVar[bool] = True
    sparse: ClassVar[bool] = True

    def out_features(self, width: int) -> int:
        """Columns of the hashed rows."""
        return self.n_features

    def check(self) -> None:
        """Raise InvalidParameter when a value is outside its range."""
        n = self.n_features
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or not 1 <= n < 2**31:
            raise InvalidParameter(f"n_features={n!r} of hashing; it must be an integer ≥ 1 and below 2³¹.")
        if not isinstance(self.alternate_sign, bool):
            raise InvalidParameter(f"alternate_sign={self.alternate_sign!r} of hashing; it must be a bool.")

    def apply(self, X: Any, width: int, names: tuple[str, ...] | None = None) -> sp.csr_matrix:
        """Rows X (rows, features) hashed to CSR (rows, n_features) float64, by `names` or by column number."""
        X = sp.csr_matrix(X).astype(np.float64)
        if names is None:  # of an unnamed row's columns, which may be millions, only those that are there
            used, indices = np.unique(X.indices, return_inverse=True)
            X = sp.csr_matrix((X.data, indices, X.indptr), shape=(X.shape[0], len(used)))
        table = hash_table(self, tuple(names)) if names is not None else _hash_table(self, map(str, used.tolist()))
        hashed = sp.csr_matrix(X @ table)
        hashed.sum_duplicates()
        return hashed

    def bytes(self, width: int) -> int:
        """12 bytes a feature."""
        return 12 * width


def _hash_table(spec: Hashing, names: Iterable[str]) -> sp.csr_matrix:
    """(names, n_features) CSR with one ±1 a row: each name's column and sign."""
    from sklearn.feature_extraction import FeatureHasher

    hasher = FeatureHasher(spec.n_features, input_type="string", alternate_sign=spec.alternate_sign)
    words = [[name] for name in names]
    return hasher.transform(words).tocsr() if words else sp.csr_matrix((0, spec.n_features))


hash_table = lru_cache(maxsize=64)(_hash_table)
"""The same, for names that come again and again."""


def named_rows(X: Sequence[Mapping[Any, Any]]) -> tuple[sp.csr_matrix, tuple[str, ...]]:
    """Dicts as CSR (rows, names) float64 and the names, in order of first appearance. Raises InvalidRows.

    Numbers are values, bools 0 or 1; a string value v of feature f is the feature "f=v" with value 1.
    """
    places: dict[str, int] = {}
    indptr, indices, values = [0], [], []
    for i, row in enumerate(X):
        for key, given in row.items():
            name, value = (f"{key}={given}", 1.0) if isinstance(given, str) else (str(key), given)
            indices.append(places.setdefault(name, len(places)))
            values.append(_number(value, key, i))
        indptr.append(len(indices))
    matrix = sp.csr_matrix((np.asarray(values, dtype=np.float64), indices, indptr), shape=(len(X), len(places)))
    matrix.sum_duplicates()
    return matrix, tuple(places)


def _number(value: Any, key: Any, row: int) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as e:
        raise InvalidRows(f"row {row}, feature {key!r} is {value!r}; values must be numbers, strings or bools.") from e
