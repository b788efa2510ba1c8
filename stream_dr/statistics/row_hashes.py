"""Hashes of rows, from which a row's fold follows.

The hash of a row depends only on the row's values and its target. So a row gets the same fold in
every batch, on every machine, and again when it is unlearned. A dense and a sparse row with the
same values have the same hash.

The hash is a sum of mixed 64-bit numbers, one for each value that is not 0 [mathematics §13].
`mix_bits` is the last step of the random number generator splitmix64, and ⊕ is the bitwise
exclusive or. A column is its index, or the xxh64 hash of its name if the feature map finds columns
by name:

    hash = Σ mix_bits(bits of float32(value) ⊕ mix_bits(column)) + hash of the target    (modulo
    2⁶⁴)

A text enters as its xxh64 hash. The sum does not depend on the order of columns, and a new column
in which a row has the value 0 does not change the row's hash.

Hashing a value takes about 1 ns.
"""

from collections.abc import Iterable

import numpy as np
import xxhash

from stream_dr.batch.block import Block
from stream_dr.batch.table import ColumnValues
from stream_dr.batch.targets import Targets
from stream_dr.compiled import compiled, readonly_view
from stream_dr.errors import InvalidParameter

_SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31)
_FACTORS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
"""Constants of the last step of the random number generator splitmix64.

`mix_bits` uses them to mix the bits of numbers.
"""

_TARGET = np.uint64(0x9E3779B97F4A7C15)
"""Number that is mixed into a target's hash.

So a value has different hashes as a feature and as a target.
"""


def mix_bits(numbers: np.ndarray) -> np.ndarray:
    """Return numbers with mixed bits.

    The method is the last step of the random number generator splitmix64.

    numbers: uint64 numbers.
    """
    numbers = (numbers ^ (numbers >> _SHIFTS[0])) * _FACTORS[0]
    numbers = (numbers ^ (numbers >> _SHIFTS[1])) * _FACTORS[1]
    mixed: np.ndarray = numbers ^ (numbers >> _SHIFTS[2])
    return mixed


_mix = compiled(forceinline=True)(mix_bits)


@compiled()
def _add_dense_row_hashes(float32_bits: np.ndarray, column_keys: np.ndarray, hashes: np.ndarray) -> None:
    """Add the hashes of dense rows to `hashes`.

    float32_bits: (rows, columns) uint32, the bits of the rows' values as float32 numbers.
    column_keys: (columns,) uint64, a number for each column, with mixed bits.
    hashes: (rows,) uint64, changed in place.
    """
    for i in range(float32_bits.shape[0]):
        total = hashes[i]
        for j in range(float32_bits.shape[1]):
            # The value is not 0 if any bit other than the sign bit is set.
            if float32_bits[i, j] & np.uint32(0x7FFFFFFF):
                total += _mix(np.uint64(float32_bits[i, j]) ^ column_keys[j])
        hashes[i] = total


@compiled()
def _add_sparse_row_hashes(
    float32_bits: np.ndarray, indices: np.ndarray, indptr: np.ndarray, column_keys: np.ndarray, hashes: np.ndarray
) -> None:
    """Add the hashes of CSR rows to `hashes`.

    float32_bits: (entries,) uint32, the bits of the entries' values as float32 numbers.
    indices, indptr: column of each entry, and start of each row, as in scipy's CSR matrices.
    column_keys: (columns,) uint64, a number for each column, with mixed bits. Empty if a column is
        hashed by its index, not by its name.
    hashes: (rows,) uint64, changed in place.
    """
    for i in range(len(indptr) - 1):
        total = hashes[i]
        for at in range(indptr[i], indptr[i + 1]):
            if float32_bits[at] & np.uint32(0x7FFFFFFF):
                key = column_keys[indices[at]] if len(column_keys) else _mix(np.uint64(indices[at]))
                total += _mix(np.uint64(float32_bits[at]) ^ key)
        hashes[i] = total


def row_and_target_hashes(block: Block, hash_column_names: bool = False) -> np.ndarray:
    """Return a hash of each numeric row with its target.

    The result is (rows,) uint64. Rows with equal values and targets have equal hashes.

    hash_column_names: True if a feature map finds columns by name. A column is then hashed by its
        name, not by its index.
    """
    out = np.zeros(block.rows, dtype=np.uint64)
    named = hash_column_names and block.names is not None
    keys = mix_bits(text_hashes(block.names or ())) if named else np.zeros(0, dtype=np.uint64)
    if block.sparse:
        X = block.X
        _add_sparse_row_hashes(_float32_bits(X.data), readonly_view(X.indices), readonly_view(X.indptr), keys, out)
    else:
        _add_dense_row_hashes(_float32_bits(block.X), keys if named else _column_index_keys(block.features), out)
    return mix_bits(out + target_hashes(block.y, block.rows))


def table_row_hashes(columns: Iterable[tuple[str, ColumnValues]], targets: Targets | None, n_rows: int) -> np.ndarray:
    """Return a hash of each table row with its target.

    The result is (rows,) uint64. Missing values add nothing to a hash.

    columns: name and values of each column that the feature map encodes.
    targets: targets of the rows, or None.
    n_rows: number of rows.
    """
    out = np.zeros(n_rows, dtype=np.uint64)
    for name, column in columns:
        key = mix_bits(text_hashes([name]))
        if not column.has_texts:
            _add_dense_row_hashes(_float32_bits(np.nan_to_num(column.values)[:, None]), key, out)
        elif column.labels:
            out += np.where(column.missing, np.uint64(0), mix_bits(text_hashes(column.labels) ^ key)[column.values])
    return mix_bits(out + target_hashes(targets, n_rows))


def group_hashes(groups: Iterable[object]) -> np.ndarray:
    """Return a hash of the group of each row.

    The user gives rows that belong together the same group. The result is (rows,) uint64. The int
    2 and the float 2.0 have the same hash. Raises InvalidParameter if a row has no group (None or
    NaN).

    groups: group of each row, a name or a number.
    """
    names = list(groups)
    for row, group in enumerate(names):
        if group is None or group != group:
            raise InvalidParameter(
                f"the group of row {row} is {group!r}; give each row a group, such as its own number."
            )
    whole = (int(group) if isinstance(group, float) and group.is_integer() else group for group in names)
    return mix_bits(text_hashes(map(str, whole)))


def target_hashes(targets: Targets | None, n_rows: int) -> np.ndarray:
    """Return a hash of each row's target.

    The result is (rows,) uint64. It is 0 for rows without a target.

    targets: targets of the rows, or None.
    n_rows: number of rows.
    """
    if targets is None:
        return np.zeros(n_rows, dtype=np.uint64)
    sums = np.zeros(n_rows, dtype=np.uint64)
    if targets.values is not None:
        _add_dense_row_hashes(_float32_bits(targets.values), _column_index_keys(targets.values.shape[1]), sums)
    elif targets.labels:
        # True and 1 have the same hash.
        texts = (str(int(label)) if isinstance(label, int) else label for label in targets.labels)
        codes = text_hashes(texts)[targets.codes]
        # `codes` has the hash of each label of each row, row after row.
        # The sum of a row's hashes is a difference of two running sums, modulo 2⁶⁴.
        running = np.concatenate((np.zeros(1, dtype=np.uint64), np.cumsum(codes, dtype=np.uint64)))
        sums = codes if targets.indptr is None else running[targets.indptr[1:]] - running[targets.indptr[:-1]]
    hashes = mix_bits(sums ^ _TARGET)
    return hashes if targets.present is None else np.where(targets.present, hashes, np.uint64(0))


def text_hashes(texts: Iterable[str]) -> np.ndarray:
    """Return the xxh64 hash of each text in UTF-8.

    The result is (texts,) uint64.
    """
    return np.array([xxhash.xxh64_intdigest(text.encode("utf-8", "surrogatepass")) for text in texts], dtype=np.uint64)


def _float32_bits(values: np.ndarray) -> np.ndarray:
    """Return the bits of values as float32 numbers.

    The result is uint32 and has the shape of `values`.
    """
    with np.errstate(over="ignore", under="ignore"):
        return readonly_view(np.ascontiguousarray(values, dtype=np.float32).view(np.uint32))


def _column_index_keys(n_columns: int) -> np.ndarray:
    return mix_bits(np.arange(n_columns, dtype=np.uint64))
