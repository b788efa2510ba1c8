"""MATLAB: `.mat` files with a matrix of rows (fea) and labels (gnd).

Files of version 5 (MATLAB's -v6 and -v7) are read by scipy. Version 7.3 is HDF5 and is refused
with what to do. Memory: the two named variables are read whole, because the format compresses a
variable in one piece and stores it by column. Other variables are skipped.

Why this way: sets in this format are small (20 Newsgroups: 4 MB). Those too large for memory come
as text.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import scipy.io
import scipy.sparse as sp

from stream_dr.aliases import FileName
from stream_dr.datasets.readers.lines import BLOCK_ROWS
from stream_dr.errors import (
    InvalidTargets,
    MalformedInput,
    SchemaMismatch,
    SourceMissing,
    StreamDRError,
    did_you_mean,
)
from stream_dr.rows.block import Block, Rows, check_finite
from stream_dr.targets.label_codes import check_exact
from stream_dr.targets.parsing import parse_targets
from stream_dr.targets.targets import Targets, class_targets, continuous_targets


def read_matlab(
    path: FileName,
    *,
    features: str = "fea",
    labels: str | None = "gnd",
    subset: str | None = None,
    rows: int = BLOCK_ROWS,
) -> Iterator[Block]:
    """Yield blocks of rows, sparse or dense, with their targets.

    Parameters
    ----------
    path : path
        File to read.
    features : str
        Variable of the rows (n, d).
    labels : str or None
        Variable of the targets: classes (n,) or an indicator (n, k). None: rows have no targets.
    subset : str or None
        Variable of row numbers, counted from 1 as MATLAB does (trainIdx). Only those rows are
        yielded, in that order.
    rows : int
        Number of rows in a block.

    Raises SourceMissing, MalformedInput, and SchemaMismatch if a variable does not exist or does
    not fit.
    """
    names = [name for name in (features, labels, subset) if name is not None]
    variables = _load_variables(path, names)
    X = _as_rows(path, features, variables[features])
    if X.ndim != 2:
        raise SchemaMismatch(f"{path}: {features!r} has {X.ndim} dimensions; rows are (n, d).")

    try:
        check_finite(X)
        targets = None if labels is None else _parse_labels(variables[labels], X.shape[0])
        if targets is not None and targets.rows != X.shape[0]:
            raise InvalidTargets(
                f"{labels!r} has {targets.rows} rows, {features!r} {X.shape[0]}; give one target a row."
            )
    except StreamDRError as e:
        raise MalformedInput(f"{path}: {e}", file=str(path)) from e

    order = np.arange(X.shape[0]) if subset is None else _row_order(path, variables[subset], X.shape[0])
    for start in range(0, len(order), rows):
        block_rows = order[start : start + rows]
        yield Block(X[block_rows], None if targets is None else targets.take(block_rows))


def _load_variables(path: FileName, names: list[str]) -> dict[str, Rows]:
    """Return the variables of these names.

    Raises SourceMissing, MalformedInput, and SchemaMismatch for a variable that does not exist.
    """
    if not Path(path).is_file():
        raise SourceMissing(f"there is no file {path}; give the path of a file that is there.")

    try:
        listed = scipy.io.whosmat(path)
        variables = scipy.io.loadmat(path, variable_names=names)
    except NotImplementedError as e:
        raise MalformedInput(f"{path} is of MATLAB version 7.3 (HDF5); save it again with -v7.", file=str(path)) from e
    # Wrong bytes make scipy raise errors of any type.
    except Exception as e:
        raise MalformedInput(f"{path} is not a MATLAB file ({e}).", file=str(path)) from e

    for value in filter(sp.issparse, variables.values()):
        _check_indices(path, value)

    missing = [name for name in names if name not in variables]
    if missing:
        existing = [name for name, _, _ in listed]
        meant = did_you_mean(missing[0], existing)
        raise SchemaMismatch(
            f"{path} has no variable {missing[0]!r}{meant}; it has {', '.join(existing)}. Name them with features, labels, "
            "subset."
        )
    return variables


def _check_indices(path: FileName, matrix: Rows) -> None:
    """Raise MalformedInput if a sparse matrix has an index outside its shape.

    Compiled code would trust it.
    """
    try:
        # scipy checks every index of a COO matrix itself.
        if matrix.format != "coo":
            matrix.check_format(full_check=True)
    except (ValueError, TypeError) as e:
        raise MalformedInput(f"{path} has a sparse variable that is damaged ({e}).", file=str(path)) from e


def _as_rows(path: FileName, name: str, values: Rows) -> Rows:
    """Return a variable as float64 rows, CSR or C-ordered.

    Raises SchemaMismatch if it holds no numbers.
    """
    if (not isinstance(values, np.ndarray) and not sp.issparse(values)) or values.dtype.kind not in "biufc":
        raise SchemaMismatch(f"{path}: {name!r} holds no numbers; name the variable that does.")
    if sp.issparse(values):
        return sp.csr_matrix(values, dtype=np.float64)
    return np.ascontiguousarray(values, dtype=np.float64)


def _parse_labels(values: Rows, rows: int) -> Targets:
    """Return Targets from numbers or cells of strings, (n, 1) or (1, n).

    A 0/1 matrix gives label sets.
    """
    Y = values.toarray() if sp.issparse(values) else np.asarray(values)

    if Y.dtype == object:
        if not all(np.size(cell) for cell in Y.ravel()):
            raise InvalidTargets("a label is an empty cell; leave those rows out.")
        return class_targets([str(np.asarray(cell).ravel()[0]) for cell in Y.ravel()])

    if Y.dtype.kind not in "biuf":
        raise InvalidTargets(f"labels of type {Y.dtype} are not numbers; give numbers, or a cell array of strings.")
    if Y.dtype.kind == "f" and not np.isfinite(Y).all():
        raise InvalidTargets("labels contain NaN or infinity; leave those rows out.")

    # MATLAB stores whole numbers as doubles, so their type does not say that they are classes.
    if Y.ndim == 1 or 1 in Y.shape:
        flat = Y.ravel()
        if np.issubdtype(flat.dtype, np.floating) and not np.all(flat == np.floor(flat)):
            return continuous_targets(flat)
        if flat.dtype.kind == "f":
            check_exact(flat)
        return class_targets(flat if flat.dtype.kind == "u" else flat.astype(np.int64))

    return parse_targets(Y, rows, ("multilabel", "continuous"))


def _row_order(path: FileName, numbers: Rows, rows: int) -> np.ndarray:
    """Return a subset's row numbers, counted from 0."""
    order = np.asarray(numbers).ravel().astype(np.int64) - 1
    if len(order) and (order.min() < 0 or order.max() >= rows):
        raise SchemaMismatch(f"{path}: the subset names rows outside 1 … {rows}.")
    return order
