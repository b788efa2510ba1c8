"""MATLAB: read `.mat` files with rows and labels.

The variables are called `fea` (rows) and `gnd` (labels) unless the caller names others. scipy
reads files that were saved with MATLAB's options -v6 and -v7. Files of version 7.3 are HDF5 and
cannot be read. The error says how to save them again.

The variables that the caller names are in memory as a whole. They cannot be read in parts, because
the format compresses a whole variable and stores its columns one after the other. Data sets in
this format are small (20 Newsgroups has 4 MB).
"""

from collections.abc import Iterator

import numpy as np
import scipy.io
import scipy.sparse as sp

from stream_dr.aliases import FileName
from stream_dr.datasets.readers.lines import BLOCK_ROWS, check_file_exists, errors_as_malformed_input
from stream_dr.errors import InvalidTargets, MalformedInput, SchemaMismatch, StreamDRError, did_you_mean
from stream_dr.rows.block import Block, Rows, check_finite
from stream_dr.targets.parsing import parse_target_array
from stream_dr.targets.targets import Targets, class_targets


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
        targets = None if labels is None else _parse_targets_variable(variables[labels])
        if targets is not None and targets.rows != X.shape[0]:
            raise InvalidTargets(
                f"{labels!r} has {targets.rows} rows, {features!r} {X.shape[0]}; give one target a row."
            )
    except StreamDRError as e:
        raise MalformedInput(f"{path}: {e}", file=str(path)) from e

    order = np.arange(X.shape[0]) if subset is None else _zero_based_row_numbers(path, variables[subset], X.shape[0])
    for start in range(0, len(order), rows_per_block):
        block_rows = order[start : start + rows_per_block]
        yield Block(X[block_rows], None if targets is None else targets.take(block_rows))


def _load_variables(path: FileName, variable_names: list[str]) -> dict[str, Rows]:
    """Return variables of a MATLAB file, by name.

    variable_names: names of the variables to read.

    Raises SourceMissing if the file does not exist, MalformedInput if the file cannot be read, and
    SchemaMismatch if a variable does not exist.
    """
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
    if (not isinstance(values, np.ndarray) and not sp.issparse(values)) or values.dtype.kind not in "biufc":
        raise SchemaMismatch(f"{path}: {variable_name!r} holds no numbers; name the variable that does.")
    if sp.issparse(values):
        return sp.csr_matrix(values, dtype=np.float64)
    return np.ascontiguousarray(values, dtype=np.float64)


def _parse_targets_variable(values: Rows) -> Targets:
    """Convert a variable to Targets.

    The shape and the values of the variable decide the kind of targets:

    - Vector (n, 1) or (1, n) of whole numbers or strings: one label for each row.
    - Vector of other numbers: one numeric target for each row.
    - Matrix (n, k) of 0 and 1: several labels for each row. Entry (i, j) is 1 if row i has
      label j.
    - Any other matrix (n, k): k numeric targets for each row.

    A row has no target if its number in a vector is NaN.
    """
    Y = values.toarray() if sp.issparse(values) else np.asarray(values)

    if Y.dtype == object:
        if not all(np.size(cell) for cell in Y.ravel()):
            raise InvalidTargets("a label is an empty cell; leave those rows out.")
        return class_targets([str(np.asarray(cell).ravel()[0]) for cell in Y.ravel()])

    if Y.dtype.kind not in "biuf":
        raise InvalidTargets(f"labels of type {Y.dtype} are not numbers; give numbers, or a cell array of strings.")
    # MATLAB stores whole numbers as doubles, so the type does not show whether they are labels.
    return parse_target_array(Y.ravel() if 1 in Y.shape else Y)


def _zero_based_row_numbers(path: FileName, one_based_numbers: Rows, n_rows: int) -> np.ndarray:
    """Return the indices of a subset's rows, from 0.

    one_based_numbers: numbers of the subset's rows in the file, from 1.
    n_rows: number of rows of the data set.

    Raises SchemaMismatch for a number outside the data set.
    """
    order = np.asarray(one_based_numbers).ravel().astype(np.int64) - 1
    if len(order) and (order.min() < 0 or order.max() >= n_rows):
        raise SchemaMismatch(f"{path}: the subset names rows outside 1 … {n_rows}.")
    return order
