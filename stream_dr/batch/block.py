"""Block (one batch of rows) and checks of its data.

A Block is immutable, and its arrays are never written to. Its rows are a C-ordered ndarray or a
scipy CSR matrix of float32 or float64, or a table, which is a `pa.RecordBatch` that a feature map
encodes as numbers. In a CSR matrix, the indices of each row are sorted and distinct. Sums of
float32 rows are computed in float64, but the batch as a whole is not converted. Targets are a
`Targets` object. A caller's own source may also pass targets in any form that `parse_targets`
reads.

A batch is not copied if its layout is suitable.
"""

from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike

from stream_dr.batch.sparse import has_canonical_indices, is_sparse, row_of_entry
from stream_dr.batch.table import LARGEST, drop_unused_texts, fill_masked, is_table
from stream_dr.compiled import readonly_view
from stream_dr.errors import InvalidWeights, NotFinite, SchemaMismatch, did_you_mean

Ids = list[str] | list[int]
"""Ids of a batch's rows, one for each row."""

Rows = Any
"""Rows (rows, features) as an ndarray, a CSR matrix or a table.

The type is Any because scipy has no types.
"""


class Block(NamedTuple):
    """One batch of rows.

    Attributes
    ----------
    X : ndarray or csr_matrix (rows, features), or RecordBatch
        Rows of float32 or float64. An ndarray is C-ordered. In a CSR matrix the indices of each
        row are sorted and distinct. A RecordBatch is a table for the feature maps `table` and
        `text`, as `stream_dr.batch.table` describes it.
    y : Targets, unparsed targets of each row, or None
    weights : ndarray (rows,) or None
        Weight of each row, float64, at least 0.
    ids : list of str or list of int, or None
        Id of each row. The service's /transform returns the ids.
    names : tuple of str or None
        Names of the features, in the order of the columns.
    width_stated : bool
        False if the number of features is only inferred from the largest index of a sparse batch.
    hashes : ndarray (rows,) uint64 or None
        Hash of each row, or of the row's group. The hash decides the row's fold in a
        cross-validation. None means that the hashes are computed from the rows' values.

    Examples
    --------
    >>> import numpy as np
    >>> from stream_dr import Block
    >>> block = Block(np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), weights=np.ones(3))
    >>> block.rows, block.features
    (3, 2)
    >>> block.take(np.array([2, 0])).X.tolist()
    [[5.0, 6.0], [1.0, 2.0]]
    """

    X: Rows
    y: Any = None
    weights: np.ndarray | None = None
    ids: Ids | None = None
    names: tuple[str, ...] | None = None
    width_stated: bool = True
    hashes: np.ndarray | None = None

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    @property
    def features(self) -> int:
        """Number of columns of this batch.

        Later sparse batches may have more columns.
        """
        return int(self.X.shape[1])

    @property
    def sparse(self) -> bool:
        """True if the rows are CSR."""
        return not isinstance(self.X, np.ndarray) and is_sparse(self.X)

    @property
    def table(self) -> bool:
        """True if the rows are a table, whose columns are not yet numbers."""
        return not isinstance(self.X, np.ndarray) and is_table(self.X)

    @property
    def nbytes(self) -> int:
        """Number of bytes of the rows."""
        if self.sparse:
            return int(self.X.data.nbytes + self.X.indices.nbytes + self.X.indptr.nbytes)
        return int(self.X.nbytes)

    def reorder(self, names: tuple[str, ...] | None) -> "Block":
        """Return the block with its columns in the order of `names`.

        The block is returned unchanged if its columns or the given columns have no names. Raises
        SchemaMismatch unless the block has exactly these columns.
        """
        if names is None or self.names is None or self.names == names:
            return self

        # `places` has the current column index of each name. If no name is missing and the numbers
        # of names differ, the block has unknown columns.
        places = {name: i for i, name in enumerate(self.names)}
        missing = [name for name in names if name not in places]
        if missing or len(places) != len(names):
            extra = [name for name in self.names if name not in names]
            hint = ""
            if missing:
                hint = did_you_mean(missing[0], extra)
            raise SchemaMismatch(
                f"batch lacks columns {missing[:5]}{hint} and has unknown columns {extra[:5]}; this stream has "
                f"{len(names)} named columns. Send exactly those."
            )
        # A Block that a caller has made may have more or fewer names than columns.
        if self.features != len(names):
            raise SchemaMismatch(
                f"the rows have {self.features} columns and {len(names)} names of columns; give one name a column."
            )

        # Restore the form of a Block's rows: sorted indices in CSR rows, C order in dense rows.
        order = [places[name] for name in names]
        X = self.X[:, order]
        if self.sparse:
            X.sort_indices()
        else:
            X = np.ascontiguousarray(X)
        return self._replace(X=X, names=names)

    def take(self, row_indices: np.ndarray) -> "Block":
        """Return a block of some rows, in the indices' order.

        The targets of this block must be a `Targets` object or None.

        row_indices: int64 indices of the rows.
        """
        # A table stores each distinct text once. Drop the texts that only other rows have.
        if self.table:
            rows = drop_unused_texts(self.X.take(row_indices))
        else:
            rows = self.X[row_indices]
        block = self._replace(X=rows)

        if block.y is not None:
            block = block._replace(y=block.y.take(row_indices))
        if block.weights is not None:
            block = block._replace(weights=block.weights[row_indices])
        if block.hashes is not None:
            block = block._replace(hashes=block.hashes[row_indices])
        if block.ids is not None:
            ids = [block.ids[i] for i in row_indices.tolist()]
            block = block._replace(ids=cast(Ids, ids))
        return block


def check_source_rows(X: Rows) -> None:
    """Raise an error for rows that compiled loops cannot use.

    The rows come from a caller's own source, so they were not checked before. Raises InvalidIndex
    for sparse rows with invalid index arrays. Raises NotFinite for a value that is NaN, infinite or
    too large.
    """
    if is_sparse(X):
        has_canonical_indices(X, X.shape, "row")  # Called for its errors alone.
    check_finite(X)


def check_finite(X: Rows) -> None:
    """Check that no value is NaN, infinite or above 1e100.

    Raises NotFinite if a value is NaN, or has an absolute value above 1e100. The error names the
    row and column of the first invalid value. Costs one pass over the values. If a value is
    invalid, the search for it costs a second pass.

    X: (rows, features), dense or CSR. A table is not checked.
    """
    # `values` are the stored values: (rows, features) of a dense X, (entries,) of a CSR matrix.
    # A table was checked when it was created.
    if isinstance(X, np.ndarray):
        values = X
    elif is_table(X):
        return
    else:
        values = X.data
    if not values.size:
        return
    # numpy would issue a warning for a signalling NaN. NaN is not within the bounds.
    # For single rows, a ufunc's `reduce` is faster than the methods max and min.
    with np.errstate(invalid="ignore"):
        largest = float(np.maximum.reduce(values, axis=None))
        smallest = float(np.minimum.reduce(values, axis=None))
        if largest <= LARGEST and smallest >= -LARGEST:
            return
        # Search for the first invalid value. `where` is its index in `values`: (row, column) of a
        # dense X, (entry,) of a CSR matrix. `~(… <= …)` is also True for NaN.
        magnitudes = np.abs(values.astype(np.float64))
        where = np.argwhere(~(magnitudes <= LARGEST))[0]

    # Raise an error that names the row and column of this value.
    value = values[tuple(where)]
    if is_sparse(X):
        row = row_of_entry(X.indptr, where[0])
        column = int(X.indices[where[0]])
    else:
        row = int(where[0])
        column = int(where[1])

    shown = f"{value:g}"
    if np.isnan(value):
        shown = "NaN"
    elif np.isinf(value):
        shown = "infinity"
    raise NotFinite(
        f"row {row}, column {column} is {shown}; values must be finite and at most 1e100 in size. Remove or replace it.",
        row=row,
        column=column,
    )


def as_weights(weights: ArrayLike | None, n_rows: int) -> np.ndarray | None:
    """Return weights (rows,) as float64, or None without weights.

    weights: weight of each row. A single number becomes the weight of every row.
    n_rows: number of rows.

    Raises InvalidWeights unless there is one number from 0 to 1e100 for each row.
    """
    if weights is None:
        return None
    # Masked weights become NaN, which is refused below.
    try:
        array = np.asarray(fill_masked(weights), dtype=np.float64)
    except (TypeError, ValueError) as e:
        raise InvalidWeights(f"weights are not numbers ({e}); pass one number ≥ 0 a row.") from e
    if array.ndim == 0:
        array = np.full(n_rows, float(array))
    if array.shape != (n_rows,):
        raise InvalidWeights(f"sample_weight.shape == {array.shape}, expected ({n_rows},): pass one weight a row.")

    # The comparisons are False for NaN, so NaN counts as invalid. `argmin` finds the first False.
    valid = (array >= 0) & (array <= LARGEST)
    if not valid.all():
        row = int(np.argmin(valid))
        raise InvalidWeights(f"weight {array[row]} of row {row} is not a number from 0 to {LARGEST:g}.", row=row)
    return array


def as_ids(ids: Any, n_rows: int) -> Ids:
    """Return a list of ids as strings or integers of Python.

    Raises SchemaMismatch unless there is one string for each row, or one integer of 64 bits. The
    error names the first row whose id is another value.
    """
    if not isinstance(ids, list) or len(ids) != n_rows:
        if isinstance(ids, list):
            given = f"{len(ids)} ids"
        else:
            given = f"ids of type {type(ids).__name__}"
        raise SchemaMismatch(f"{given} were given for {n_rows} rows; give a list of one id a row.", column="ids")

    # Scalars of numpy become values of Python. The first id decides the type of all ids. The test
    # with `is` refuses bools, which Python counts as integers.
    values = [id.item() if isinstance(id, np.generic) else id for id in ids]
    kind: type = str
    if values and type(values[0]) is int:
        kind = int
    for row, value in enumerate(values):
        own_type = type(value)
        if own_type is not kind:
            valid = False
        elif kind is int:
            valid = -(2**63) <= value < 2**63
        else:
            valid = is_valid_unicode(value)
        if not valid:
            raise SchemaMismatch(
                f"the id of row {row} is {value!r}; ids are strings of Unicode characters, or integers of 64 bits, all of "
                "one type.",
                row=row,
                column="ids",
            )
    return values


def is_valid_unicode(text: str) -> bool:
    """Return True if a text can be encoded in UTF-8.

    A text with half of a surrogate pair cannot be encoded.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


_ONES = readonly_view(np.ones(4096))
"""Weights of rows without given weights, created once because single rows are frequent."""


def weights_or_ones(weights: np.ndarray | None, n_rows: int) -> np.ndarray:
    """Return read-only weights (rows,) for compiled loops.

    weights: (rows,), or None. If None, all weights are 1.
    n_rows: number of rows.
    """
    if weights is not None:
        return readonly_view(weights)
    if n_rows <= len(_ONES):
        return _ONES[:n_rows]
    return readonly_view(np.ones(n_rows))
