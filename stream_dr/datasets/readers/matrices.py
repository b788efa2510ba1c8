"""Read matrices of numpy (.npy, .npz) and of MATLAB (.mat).

A .npz file may have a sparse matrix that was written by scipy.sparse.save_npz.

At most 64 MiB of rows of an array are in memory if the array is stored by row, which is numpy's
default. Arrays that are stored by column and sparse matrices are read as a whole. Pickled objects
are not read.

The variables of a `.mat` file are called `fea` (rows) and `gnd` (labels) unless the caller names
others. scipy reads files that were saved with MATLAB's options -v6 and -v7. Files of version 7.3
are HDF5 and cannot be read. The error says how to save them again.

The variables that the caller names are in memory as a whole. They cannot be read in parts, because
the format compresses a whole variable and stores its columns one after the other. Data sets in
this format are small (20 Newsgroups has 4 MB).
"""

import itertools
import lzma
import math
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from typing import IO

import numpy as np
import scipy.io
import scipy.sparse as sp

from stream_dr.aliases import FileName
from stream_dr.batch.block import Block, Rows, check_finite
from stream_dr.batch.parsing import parse_target_array
from stream_dr.batch.targets import Targets, class_targets
from stream_dr.datasets.readers.lines import BLOCK_ROWS, check_file_exists, errors_as_malformed_input, open_decompressed
from stream_dr.errors import InvalidTargets, MalformedInput, SchemaMismatch, StreamDRError, did_you_mean

PIECE = 64 << 20
"""Maximum number of bytes that are read at a time. At least one row is read."""

_FAULT = "is no file of numpy's that can be read"
_ERRORS = (ValueError, OSError, EOFError, NotImplementedError, lzma.LZMAError, zlib.error, zipfile.BadZipFile)
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
"""Version of the .npy format → numpy's function that reads the header of a file."""


class _NpyArrayReader:
    """Reader of one array in a .npy file.

    Attributes
    ----------
    shape : tuple of int
        Shape of the array, from the file's header.
    dtype : dtype
        Type of the array, from the file's header.
    """

    def __init__(self, file: IO[bytes], path: FileName) -> None:
        self._file = file
        self._path = path
        version = np.lib.format.read_magic(file)
        if version not in _HEADERS:
            raise MalformedInput(f"{path} is of version {version} of numpy's format; save plain numbers or strings.")

        self.shape, by_columns, self.dtype = _HEADERS[version](file)
        self._by_columns = by_columns and len(self.shape) > 1
        self._row_bytes = max(8, self.dtype.itemsize) * math.prod(self.shape[1:])

    def pieces(self, rows_per_piece: int) -> Iterator[np.ndarray]:
        """Yield the array in parts of `rows_per_piece` rows each.

        The last part may have fewer rows. Raises MalformedInput if the file is too short.
        """
        # An array stored by columns is read as a whole, because its rows are not contiguous.
        # The file has the elements of the transposed array.
        if self._by_columns:
            whole = self._read_next_rows_flat(self.shape[0]).reshape(self.shape[::-1]).T
            yield from (whole[start : start + rows_per_piece] for start in range(0, len(whole), rows_per_piece))
            return

        for start in range(0, self.shape[0], rows_per_piece):
            count = min(rows_per_piece, self.shape[0] - start)
            yield self._read_next_rows_flat(count).reshape(count, *self.shape[1:])

    def check_array_kind(self, *allowed_dimensions: int) -> None:
        """Raise SchemaMismatch if the array has a wrong type or shape.

        The array must consist of numbers or strings. If it has columns, there must be at least one.

        allowed_dimensions: numbers of dimensions that the array may have, for example 1 and 2 for
            targets.
        """
        # The letters are numpy's kinds of booleans, integers, floats and strings.
        if self.dtype.kind not in "biufU":
            raise SchemaMismatch(f"{self._path} holds {self.dtype}, no plain numbers or strings; save X.astype(…).")
        if len(self.shape) not in allowed_dimensions or 0 in self.shape[1:]:
            raise SchemaMismatch(
                f"{self._path} has the shape {self.shape}; rows are (n, d), targets (n,) or (n, k): reshape(n, -1)."
            )

    def piece_row_count(self, max_rows: int) -> int:
        """Return the number of rows to read at a time.

        These rows take at most PIECE bytes, unless one row takes more. The number is at least 1.

        max_rows: largest number to return.
        """
        return max(1, min(max_rows, PIECE // self._row_bytes))

    def _read_next_rows_flat(self, n_rows: int) -> np.ndarray:
        size = n_rows * self.dtype.itemsize * math.prod(self.shape[1:])
        data = self._file.read(size)
        if len(data) < size:
            raise MalformedInput(f"{self._path} ends before its {self.shape[0]} rows do.", file=str(self._path))
        return np.frombuffer(data, self.dtype)


def read_npy(
    path: FileName, *, labels: str | None = None, target: str = "auto", rows_per_block: int = BLOCK_ROWS
) -> Iterator[Block]:
    """Yield the rows of an array (n, d) in blocks.

    Parameters
    ----------
    path : path
        File to read, which may be compressed (.gz, .bz2, .xz, archive.zip!member).
    labels : str or None
        Path of a .npy file with the targets, (n,) or (n, k). None if rows have no targets. (n, 1)
        is read like (n,), unless `target` is "multilabel".
    target : str
        Kind of the targets. "auto": the type and the values of the targets decide.
    rows_per_block : int
        Maximum number of rows in a block.

    Raises SourceMissing, SchemaMismatch, InvalidTargets, MalformedInput.
    """
    with ExitStack() as files, errors_as_malformed_input(path, _FAULT, *_ERRORS):
        X = _NpyArrayReader(files.enter_context(open_decompressed(path)), path)
        # Rows are an array of 2 dimensions.
        X.check_array_kind(2)
        Y = None
        if labels is not None:
            Y = _open_target_reader(files, labels)
        # Rows and targets are read in pieces of the same number of rows.
        rows_per_block = min(array.piece_row_count(rows_per_block) for array in (X, Y) if array is not None)
        yield from _combine_into_blocks(path, X.pieces(rows_per_block), X.shape[0], Y, target, rows_per_block)


def read_npz(
    path: FileName,
    *,
    features: str = "X",
    labels: str | None = None,
    label: str | None = None,
    target: str = "auto",
    rows_per_block: int = BLOCK_ROWS,
) -> Iterator[Block]:
    """Yield the rows of a .npz archive in blocks.

    The rows are one array of the archive, or the archive is a sparse matrix of scipy.

    Parameters
    ----------
    path : path
        File to read.
    features : str
        Name of the array with the rows. Ignored if the archive is a sparse matrix.
    labels : str or None
        Name of the array with the targets, or path of a .npy file. If `labels` and `label` are
        None, the targets are the array "y". Without such an array, rows have no targets.
    label : str or None
        Another name for `labels`, which is used if `labels` is None.
    target : str
        Kind of the targets, as in `read_npy`.
    rows_per_block : int
        Maximum number of rows in a block.

    Raises the errors of `read_npy`.
    """
    refuse_damaged = errors_as_malformed_input(path, _FAULT, *_ERRORS)
    with refuse_damaged, open_decompressed(path) as file, zipfile.ZipFile(file) as archive:
        arrays = [name.removesuffix(".npy") for name in archive.namelist()]

    # scipy.sparse.save_npz stores a sparse matrix as several arrays, three of which are named here.
    is_sparse = {"format", "shape", "data"} <= set(arrays)
    labels = labels or label
    if labels is None and "y" in arrays:
        labels = "y"
    # `labels` is the path of a .npy file, or the name of an array that the archive must have.
    needed = [] if is_sparse else [features]
    targets_path = labels
    if labels is not None and not labels.endswith(".npy"):
        needed.append(labels)
        targets_path = f"{path}!{labels}.npy"
    if missing := [name for name in needed if name not in arrays]:
        raise SchemaMismatch(
            f"{path} has no array {missing[0]!r}; it has {', '.join(arrays)}. Name them with --features and --labels."
        )

    if is_sparse:
        yield from _read_sparse_npz(path, targets_path, target, rows_per_block)
    else:
        yield from read_npy(f"{path}!{features}.npy", labels=targets_path, target=target, rows_per_block=rows_per_block)


def _read_sparse_npz(path: FileName, targets_path: str | None, target: str, rows_per_block: int) -> Iterator[Block]:
    """Yield the rows of a sparse matrix in blocks, with their targets.

    targets_path: path of a .npy file with the targets, or None. Other parameters are as in
        `read_npz`.
    """
    with ExitStack() as files, errors_as_malformed_input(path, _FAULT, *_ERRORS):
        X = _load_sparse_npz(path)
        Y = None
        if targets_path is not None:
            Y = _open_target_reader(files, targets_path)
            rows_per_block = Y.piece_row_count(rows_per_block)
        pieces = (X[start : start + rows_per_block] for start in range(0, X.shape[0], rows_per_block))
        yield from _combine_into_blocks(path, pieces, X.shape[0], Y, target, rows_per_block)


def _open_target_reader(exit_stack: ExitStack, path: str) -> _NpyArrayReader:
    """Open a file of targets and return its reader.

    When `exit_stack` ends, the file is closed.
    """
    Y = _NpyArrayReader(exit_stack.enter_context(open_decompressed(path)), path)
    # Targets are an array of 1 or 2 dimensions.
    Y.check_array_kind(1, 2)
    return Y


def _load_sparse_npz(path: FileName) -> sp.csr_matrix:
    """Read a matrix that `scipy.sparse.save_npz` has written, as float64 CSR."""
    # Check all indices, because compiled code uses them without a check.
    X = sp.load_npz(path)
    if X.format not in ("csr", "csc"):
        raise SchemaMismatch(f"{path} is a matrix in {X.format} format; save X.tocsr().")
    X.check_format(full_check=True)
    return sp.csr_matrix(X, dtype=np.float64)


def _combine_into_blocks(
    path: FileName,
    row_pieces: Iterator[Rows],
    n_rows: int,
    target_reader: _NpyArrayReader | None,
    target_kind: str,
    rows_per_piece: int,
) -> Iterator[Block]:
    """Combine rows and targets, and yield them as Blocks.

    Raises InvalidTargets if the numbers of rows and targets differ.

    path: path of the file, for error messages.
    row_pieces: the rows, `rows_per_piece` at a time.
    n_rows: total number of rows.
    target_reader: reader of the targets, or None.
    target_kind: kind of the targets. "auto": the first targets decide.
    rows_per_piece: number of rows in each of the pieces.
    """
    if target_reader is not None and target_reader.shape[0] != n_rows:
        raise InvalidTargets(f"{path} has {n_rows} rows and {target_reader.shape[0]} targets; give one target a row.")

    kind = target_kind
    row = 0
    # Without targets, each piece of rows is combined with None.
    target_pieces = itertools.repeat(None) if target_reader is None else target_reader.pieces(rows_per_piece)
    for X, y in zip(row_pieces, target_pieces, strict=False):
        try:
            # The kind "U" of numpy's types are strings.
            if X.dtype.kind == "U":
                raise SchemaMismatch("rows are strings, no numbers; save tables of words as CSV or Parquet.")
            if not (sp.issparse(X) or X.dtype in (np.float32, np.float64)):
                X = X.astype(np.float64)
            check_finite(X)
            targets = None
            if y is not None:
                targets = parse_target_array(y, kind)
        except StreamDRError as e:
            raise MalformedInput(f"{path}, in the {X.shape[0]} rows from {row} on: {e}", file=str(path)) from e

        # The kind of the first targets is the kind of all targets of the file.
        if targets is not None:
            kind = targets.kind
        row += X.shape[0]
        if not sp.issparse(X):
            X = np.ascontiguousarray(X)
        yield Block(X, targets)


def read_matlab(
    path: FileName,
    *,
    features: str = "fea",
    labels: str | None = "gnd",
    subset: str | None = None,
    rows_per_block: int = BLOCK_ROWS,
) -> Iterator[Block]:
    """Yield blocks of rows, sparse or dense, with their targets.

    Parameters
    ----------
    path : path
        File to read.
    features : str
        Name of the variable with the rows (n, d).
    labels : str or None
        Name of the variable with the targets: one label for each row (n,), or a matrix (n, k) of
        0 and 1 for k labels. None if rows have no targets.
    subset : str or None
        Name of the variable with the numbers of the rows to yield, in this order, from 1. None:
        all rows.
    rows_per_block : int
        Number of rows in a block.

    Raises SourceMissing and MalformedInput. Raises SchemaMismatch if a variable does not exist or
    has a wrong shape or type.
    """
    names = [name for name in (features, labels, subset) if name is not None]
    variables = _load_variables(path, names)
    X = _convert_to_float64_rows(path, features, variables[features])
    if X.ndim != 2:
        raise SchemaMismatch(f"{path}: {features!r} has {X.ndim} dimensions; rows are (n, d).")

    try:
        check_finite(X)
        targets = None
        if labels is not None:
            targets = _parse_targets_variable(variables[labels])
        if targets is not None and targets.rows != X.shape[0]:
            raise InvalidTargets(
                f"{labels!r} has {targets.rows} rows, {features!r} {X.shape[0]}; give one target a row."
            )
    except StreamDRError as e:
        raise MalformedInput(f"{path}: {e}", file=str(path)) from e

    n_rows = X.shape[0]
    order = None
    if subset is not None:
        # The file numbers the rows from 1.
        order = np.asarray(variables[subset]).ravel().astype(np.int64) - 1
        if len(order) and (order.min() < 0 or order.max() >= n_rows):
            raise SchemaMismatch(f"{path}: the subset names rows outside 1 … {n_rows}.")
    yield from split_block(Block(X, targets), rows_per_block, order)


def split_block(block: Block, rows_per_block: int = BLOCK_ROWS, order: np.ndarray | None = None) -> Iterator[Block]:
    """Yield the rows of a block in smaller blocks.

    rows_per_block: maximum number of rows in a smaller block.
    order: indices of the rows to yield, in this order. None: all rows.
    """
    if order is None:
        order = np.arange(block.rows)
    for start in range(0, len(order), rows_per_block):
        yield block.take(order[start : start + rows_per_block])


def _load_variables(path: FileName, variable_names: list[str]) -> dict[str, Rows]:
    """Return variables of a MATLAB file, by name.

    variable_names: names of the variables to read.

    Raises SourceMissing if the file does not exist, MalformedInput if the file cannot be read, and
    SchemaMismatch if a variable does not exist.
    """
    # `listed` has the name, shape and type of each variable in the file.
    check_file_exists(path)
    try:
        listed = scipy.io.whosmat(path)
        variables: dict[str, Rows] = scipy.io.loadmat(path, variable_names=variable_names)
    except NotImplementedError as e:
        raise MalformedInput(f"{path} is of MATLAB version 7.3 (HDF5); save it again with -v7.", file=str(path)) from e
    # scipy may raise an error of any type if bytes are damaged.
    except Exception as e:
        raise MalformedInput(f"{path} is not a MATLAB file ({e}).", file=str(path)) from e

    for value in filter(sp.issparse, variables.values()):
        # scipy has already checked the indices of matrices in COO format.
        if value.format != "coo":
            with errors_as_malformed_input(path, "has a sparse variable that is damaged", ValueError, TypeError):
                value.check_format(full_check=True)

    missing = [name for name in variable_names if name not in variables]
    if missing:
        existing = [name for name, _, _ in listed]
        raise SchemaMismatch(
            f"{path} has no variable {missing[0]!r}{did_you_mean(missing[0], existing)}; it has "
            f"{', '.join(existing)}. Name them with features, labels, subset."
        )
    return variables


def _convert_to_float64_rows(path: FileName, variable_name: str, values: Rows) -> Rows:
    """Return a variable as float64 rows.

    A sparse variable becomes a CSR matrix, and a dense variable an array.

    variable_name: name of the variable, for the error message.
    values: the variable.

    Raises SchemaMismatch if the values are not numbers.
    """
    # The letters are numpy's kinds of booleans, integers, floats and complex numbers.
    is_matrix = isinstance(values, np.ndarray) or sp.issparse(values)
    if not is_matrix or values.dtype.kind not in "biufc":
        raise SchemaMismatch(f"{path}: {variable_name!r} holds no numbers; name the variable that does.")
    if sp.issparse(values):
        return sp.csr_matrix(values, dtype=np.float64)
    return np.ascontiguousarray(values, dtype=np.float64)


def _parse_targets_variable(values: Rows) -> Targets:
    """Convert a variable of a MATLAB file to Targets.

    The shape and the values of the variable decide the kind of targets:

    - Vector (n, 1) or (1, n) of whole numbers or strings: one label for each row.
    - Vector of other numbers: one numeric target for each row.
    - Matrix (n, k) of 0 and 1: several labels for each row. Entry (i, j) is 1 if row i has
      label j.
    - Any other matrix (n, k): k numeric targets for each row.

    A row has no target if its number in a vector is NaN.
    """
    Y = values.toarray() if sp.issparse(values) else np.asarray(values)

    # An array of objects is a MATLAB cell array, whose cells hold strings.
    if Y.dtype == object:
        if not all(np.size(cell) for cell in Y.ravel()):
            raise InvalidTargets("a label is an empty cell; leave those rows out.")
        first_values = [np.asarray(cell).ravel()[0] for cell in Y.ravel()]
        return class_targets(list(map(str, first_values)))

    # The letters are numpy's kinds of booleans, integers and floats.
    if Y.dtype.kind not in "biuf":
        raise InvalidTargets(f"labels of type {Y.dtype} are not numbers; give numbers, or a cell array of strings.")
    # MATLAB stores whole numbers as doubles, so the type does not show whether they are labels.
    if 1 in Y.shape:
        Y = Y.ravel()
    return parse_target_array(Y)
