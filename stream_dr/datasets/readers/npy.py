"""Npy: read .npy and .npz arrays in blocks of rows.

A .npz file may have a sparse matrix that was written by scipy.sparse.save_npz.

At most 64 MiB of rows are in memory if the array is stored by row, which is numpy's default.
Arrays that are stored by column and sparse matrices are read as a whole. Pickled objects are not
read.
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
import scipy.sparse as sp

from stream_dr.aliases import FileName
from stream_dr.datasets.readers.lines import BLOCK_ROWS, errors_as_malformed_input, open_decompressed
from stream_dr.errors import InvalidTargets, MalformedInput, SchemaMismatch, StreamDRError
from stream_dr.rows.block import Block, Rows, check_finite
from stream_dr.targets.parsing import parse_target_array

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
        if self._by_columns:
            whole = self._read_next_rows_flat(self.shape[0]).reshape(self.shape[::-1]).T
            yield from (whole[start : start + rows_per_piece] for start in range(0, len(whole), rows_per_piece))
            return

        for start in range(0, self.shape[0], rows_per_piece):
            count = min(rows_per_piece, self.shape[0] - start)
            yield self._read_next_rows_flat(count).reshape(count, *self.shape[1:])

    def check_can_be_rows_or_targets(self, *allowed_dimensions: int) -> None:
        """Raise SchemaMismatch if the array cannot be rows or targets.

        The array must consist of numbers or strings, and must have at least one column.

        allowed_dimensions: allowed numbers of dimensions.
        """
        if self.dtype.kind not in "biufU":
            raise SchemaMismatch(f"{self._path} holds {self.dtype}, no plain numbers or strings; save X.astype(…).")
        if len(self.shape) not in allowed_dimensions or 0 in self.shape[1:]:
            raise SchemaMismatch(
                f"{self._path} has the shape {self.shape}; rows are (n, d), targets (n,) or (n, k): reshape(n, -1)."
            )

    def limit_rows_to_piece_bytes(self, max_rows: int) -> int:
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
        X.check_can_be_rows_or_targets(2)
        Y = None if labels is None else _open_target_reader(files, labels)
        rows_per_block = min(array.limit_rows_to_piece_bytes(rows_per_block) for array in (X, Y) if array is not None)
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
    labels, label : str or None
        Name of the array with the targets, or path of a .npy file. None: the array "y", or no
        targets if the archive has no array "y".
    target : str
        Kind of the targets, as in `read_npy`.
    rows_per_block : int
        Maximum number of rows in a block.

    Raises the errors of `read_npy`.
    """
    refuse_damaged = errors_as_malformed_input(path, _FAULT, *_ERRORS)
    with refuse_damaged, open_decompressed(path) as file, zipfile.ZipFile(file) as archive:
        arrays = [name.removesuffix(".npy") for name in archive.namelist()]

    is_sparse = {"format", "shape", "data"} <= set(arrays)
    labels = labels or label
    labels = "y" if labels is None and "y" in arrays else labels
    needed = [] if is_sparse else [features]
    needed += [labels] if labels is not None and not labels.endswith(".npy") else []
    if missing := [name for name in needed if name not in arrays]:
        raise SchemaMismatch(
            f"{path} has no array {missing[0]!r}; it has {', '.join(arrays)}. Name them with --features and --labels."
        )

    targets_path = labels if labels is None or labels.endswith(".npy") else f"{path}!{labels}.npy"
    if not is_sparse:
        yield from read_npy(f"{path}!{features}.npy", labels=targets_path, target=target, rows_per_block=rows_per_block)
        return

    with ExitStack() as files, errors_as_malformed_input(path, _FAULT, *_ERRORS):
        X = _load_sparse_npz(path)
        Y = None if targets_path is None else _open_target_reader(files, targets_path)
        rows_per_block = rows_per_block if Y is None else Y.limit_rows_to_piece_bytes(rows_per_block)
        pieces = (X[start : start + rows_per_block] for start in range(0, X.shape[0], rows_per_block))
        yield from _combine_into_blocks(path, pieces, X.shape[0], Y, target, rows_per_block)


def _open_target_reader(exit_stack: ExitStack, path: str) -> _NpyArrayReader:
    """Open a file of targets, and return a reader.

    Raises SchemaMismatch if the array cannot be targets.

    exit_stack: stack of the caller's open files. The opened file is closed with this stack.
    path: path of a .npy file, or archive.npz!member.
    """
    Y = _NpyArrayReader(exit_stack.enter_context(open_decompressed(path)), path)
    Y.check_can_be_rows_or_targets(1, 2)
    return Y


def _load_sparse_npz(path: FileName) -> sp.csr_matrix:
    """Return the sparse matrix in a .npz file as CSR.

    Values are float64. scipy.sparse.save_npz has written the file. All indices are checked,
    because compiled code uses them without a check.
    """
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
    target_pieces = itertools.repeat(None) if target_reader is None else target_reader.pieces(rows_per_piece)
    for X, y in zip(row_pieces, target_pieces, strict=False):
        try:
            if X.dtype.kind == "U":
                raise SchemaMismatch("rows are strings, no numbers; save tables of words as CSV or Parquet.")
            X = X if sp.issparse(X) or X.dtype in (np.float32, np.float64) else X.astype(np.float64)
            check_finite(X)
            targets = None if y is None else parse_target_array(y, kind)
        except StreamDRError as e:
            raise MalformedInput(f"{path}, in the {X.shape[0]} rows from {row} on: {e}", file=str(path)) from e

        # The kind of the first targets is the kind of all targets of the file.
        kind = kind if targets is None else targets.kind
        row += X.shape[0]
        yield Block(X if sp.issparse(X) else np.ascontiguousarray(X), targets)
