"""MATLAB: `.mat` files with a matrix of rows (fea) and labels (gnd).

Files of version 5 (MATLAB's -v6 and -v7) are read by scipy. Version 7.3 is HDF5 and is refused
with what to do. Memory: the two named variables are read whole, because the format compresses a
variable in one piece and stores it by column. Other variables are skipped.

Why this way: sets in this format are small (20 Newsgroups: 4 MB). Those too large for memory come
as text.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp

from stream_dr.datasets.readers.lines import BLOCK_ROWS
from stream_dr.disk import FileName
from stream_dr.errors import (
    InvalidTargets,
    MalformedInput,
    SchemaMismatch,
    SourceMissing,
    StreamDRError,
    did_you_mean,
)
from stream_dr.rows.block import Block, check_finite
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
    """Blocks of rows of `features` (n, d), sparse or dense, with `labels` (n,) classes or (n, k) indicator.

    subset: a variable of row numbers, counted from 1 as MATLAB does (trainIdx): only those rows, in that order. labels
    None: rows without targets. Raises SourceMissing, SchemaMismatch (a variable is not there or does not fit),
    MalformedInput.
    """
    names = [name for name in (features, labels, subset) if name is not None]
    variables = _load(path, names)
    X = _numbers(path, features, variables[features])
    if X.ndim != 2:
        raise SchemaMismatch(f"{path}: {features!r} has {X.ndim} dimensions; rows are (n, d).")
    try:
        check_finite(X)
        targets = None if labels is None else _targets(variables[labels], X.shape[0])
        if targets is not None and targets.rows != X.shape[0]:
            raise InvalidTargets(
                f"{labels!r} has {targets.rows} rows, {features!r} {X.shape[0]}; give one target a row."
            )
    except StreamDRError as e:
        raise MalformedInput(f"{path}: {e}", file=str(path)) from e
    order = np.arange(X.shape[0]) if subset is None else _order(path, variables[subset], X.shape[0])
    for at in range(0, len(order), rows):
        take = order[at : at + rows]
        yield Block(X[take], None if targets is None else targets.take(take))


def _load(path: FileName, names: list[str]) -> dict[str, Any]:
    if not Path(path).is_file():
        raise SourceMissing(f"there is no file {path}; give the path of a file that is there.")
    try:
        present = scipy.io.whosmat(path)
        variables = scipy.io.loadmat(path, variable_names=names)
    except NotImplementedError as e:
        raise MalformedInput(f"{path} is of MATLAB version 7.3 (HDF5); save it again with -v7.", file=str(path)) from e
    except Exception as e:  # scipy raises whatever wrong bytes lead to
        raise MalformedInput(f"{path} is not a MATLAB file ({e}).", file=str(path)) from e
    for value in filter(sp.issparse, variables.values()):
        _check_indices(path, value)
    missing = [name for name in names if name not in variables]
    if missing:
        there = [name for name, _, _ in present]
        has, meant = ", ".join(there), did_you_mean(missing[0], there)
        raise SchemaMismatch(
            f"{path} has no variable {missing[0]!r}{meant}; it has {has}. Name them with features, labels, subset."
        )
    return variables


def _check_indices(path: FileName, matrix: Any) -> None:
    """Raise MalformedInput if a sparse matrix has an index outside its shape.

    Compiled code would trust it.
    """
    try:
        if matrix.format != "coo":  # of which scipy looks at every index itself
            matrix.check_format(full_check=True)
    except (ValueError, TypeError) as e:
        raise MalformedInput(f"{path} has a sparse variable that is damaged ({e}).", file=str(path)) from e


def _numbers(path: FileName, name: str, values: Any) -> Any:
    """Rows as float64, CSR or C-ordered. Raises SchemaMismatch where they are no numbers."""
    if (not isinstance(values, np.ndarray) and not sp.issparse(values)) or values.dtype.kind not in "biufc":
        raise SchemaMismatch(f"{path}: {name!r} holds no numbers; name the variable that does.")
    if sp.issparse(values):
        return sp.csr_matrix(values, dtype=np.float64)
    return np.ascontiguousarray(values, dtype=np.float64)


def _targets(values: Any, rows: int) -> Targets:
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
    if Y.ndim == 1 or 1 in Y.shape:
        flat = Y.ravel()
        if np.issubdtype(flat.dtype, np.floating) and not np.all(flat == np.floor(flat)):
            return continuous_targets(flat)
        if flat.dtype.kind == "f":
            check_exact(flat)
        return class_targets(flat if flat.dtype.kind == "u" else flat.astype(np.int64))
    return parse_targets(Y, rows, ("multilabel", "continuous"))


def _order(path: FileName, numbers: Any, rows: int) -> np.ndarray:
    order = np.asarray(numbers).ravel().astype(np.int64) - 1
    if len(order) and (order.min() < 0 or order.max() >= rows):
        raise SchemaMismatch(f"{path}: the subset names rows outside 1 … {rows}.")
    return order
