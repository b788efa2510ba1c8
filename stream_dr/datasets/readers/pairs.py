"""Pairs: parse `index:value` pairs of many lines at once.

The pairs become a CSR matrix. Arrow's compiled functions split the bytes and parse the numbers.
They round numbers correctly and raise an error for any text that is not a number. After an error,
the lines are parsed again one by one in Python, to find the line with the error.

One core parses 2 to 4 million pairs a second. The memory is a few times the size of the lines.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp

from stream_dr.datasets.readers.lines import Lines
from stream_dr.rows.block import LARGEST

_WIDEST = 1 << 31
"""Every column index must be below this number, because CSR indices are int32."""

COLON = ord(":")
SPACE = ord(" ")
COMMENT = ord("#")

_RANGE_MESSAGES = (
    f"columns are numbered from 0, below {_WIDEST}.",
    f"columns are numbered from 1, up to {_WIDEST}. Where a libsvm file numbers them from 0, give --zero-based "
    "(zero_based=True).",
)
"""Ends of the error message for a column number that is out of range.

The first message is for files whose columns are numbered from 0. The second message is for files
whose columns are numbered from 1.
"""


def parse_index_value_pairs(
    lines: Lines, pair_offsets_in_data: np.ndarray, index_base: int, min_width: int = 0
) -> sp.csr_matrix:
    """Parse the index:value pairs of lines into a matrix.

    The matrix is CSR float64 (lines, columns). The column indices of each row are sorted.

    Parameters
    ----------
    lines : Lines
        Lines whose pairs are separated by blanks.
    pair_offsets_in_data : ndarray (lines,)
        Offset in `lines.data` at which the pairs of each line start.
    index_base : 0 or 1
        Number of the first column in the file.
    min_width : int
        Minimum number of columns of the returned matrix.

    Raises MalformedInput, which names the line.
    """
    try:
        return _parse_all_lines(lines, pair_offsets_in_data, index_base, min_width)
    except (pa.ArrowInvalid, _NotPairsError):
        _raise_if_any_bad_pair(lines, pair_offsets_in_data, index_base)
        raise


class _NotPairsError(Exception):
    """Raised if some line has anything but valid index:value pairs."""


def _parse_all_lines(lines: Lines, pair_offsets_in_data: np.ndarray, index_base: int, min_width: int) -> sp.csr_matrix:
    """Parse the index:value pairs of all lines at once.

    Returns a CSR matrix (lines, columns). Raises ArrowInvalid or _NotPairsError if some line has
    an error. These errors do not name the line.

    pair_offsets_in_data: (lines,). Offset in `lines.data` at which the pairs of each line start.
    index_base: number of the first column in the file, 0 or 1.
    min_width: minimum number of columns of the matrix.
    """
    # Each pair has two tokens, the index and the value, with a colon between them.
    n_tokens, text = _token_counts_and_blanked_bytes(lines, pair_offsets_in_data)
    colons_before = np.concatenate(([0], np.cumsum(text == COLON)))
    n_pairs = colons_before[lines.ends] - colons_before[pair_offsets_in_data]
    if np.any(n_tokens != 2 * n_pairs):
        raise _NotPairsError

    # Parse all tokens as numbers. Every second number is an index.
    text[text == COLON] = SPACE
    numbers = _parse_blank_separated_numbers(text)
    if len(numbers) != n_tokens.sum():
        raise _NotPairsError

    indices = numbers[0::2] - index_base
    values = np.ascontiguousarray(numbers[1::2])
    if not np.all((indices >= 0) & (indices < _WIDEST) & (indices == np.floor(indices))):
        raise _NotPairsError
    # NaN is refused too, because every comparison with NaN is False.
    if not np.all(np.abs(values) <= LARGEST):
        raise _NotPairsError

    indptr = np.concatenate(([0], np.cumsum(n_pairs)))
    columns = max(min_width, int(indices.max(initial=-1)) + 1)
    X = sp.csr_matrix((values, indices.astype(np.int32), indptr.astype(np.int32)), shape=(lines.rows, columns))
    if not X.has_sorted_indices:
        X.sort_indices()
    # The matrix is not in canonical format if a row has the same index twice.
    if not X.has_canonical_format:
        raise _NotPairsError
    return X


def _token_counts_and_blanked_bytes(lines: Lines, pair_offsets_in_data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Count the tokens of each line.

    A token is an index or a value. Returns two values:

    - The number of tokens of each line, (lines,).
    - A copy of the lines' bytes. Everything except the pairs is replaced by blanks.

    pair_offsets_in_data: (lines,). Offset in `lines.data` at which the pairs of each line start.
    """
    text = lines.data.copy()

    # Write +1 where the pairs of a line start, and −1 where the pairs end.
    # The running sum of `edges` is then 1 within pairs and 0 elsewhere.
    edges = np.zeros(len(text) + 1, np.int8)
    edges[pair_offsets_in_data] += 1
    np.subtract.at(edges, lines.ends, 1)
    text[np.cumsum(edges[:-1], dtype=np.int8) == 0] = SPACE

    for start in np.flatnonzero(text == COMMENT).tolist():
        line = int(np.searchsorted(lines.starts, start, side="right")) - 1
        text[start : lines.ends[line]] = SPACE

    # A token starts at a byte that follows a blank or a colon.
    solid = (text > SPACE) & (text != COLON)
    token_starts = solid.copy()
    token_starts[1:] &= ~solid[:-1]
    tokens_before = np.concatenate(([0], np.cumsum(token_starts)))
    return tokens_before[lines.ends] - tokens_before[pair_offsets_in_data], text


def _parse_blank_separated_numbers(text_bytes: np.ndarray) -> np.ndarray:
    """Parse numbers that are separated by blanks, as float64.

    text_bytes: bytes of the numbers.
    """
    # Build an Arrow array with one string from the bytes, without a copy.
    offsets = pa.py_buffer(np.array([0, len(text_bytes)], np.int64))
    strings = pa.Array.from_buffers(pa.large_string(), 1, [None, offsets, pa.py_buffer(text_bytes)])
    tokens = pc.ascii_split_whitespace(pc.ascii_trim_whitespace(strings)).values

    if len(tokens) == 1 and tokens[0].as_py() == "":
        return np.zeros(0)
    numbers: np.ndarray = tokens.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return numbers


def _raise_if_any_bad_pair(lines: Lines, pair_offsets_in_data: np.ndarray, index_base: int) -> None:
    """Raise MalformedInput for the first line with a wrong pair.

    Nothing is raised if the pairs of all lines are valid.

    pair_offsets_in_data: (lines,). Offset in `lines.data` at which the pairs of each line start.
    index_base: number of the first column in the file, 0 or 1.
    """
    for i in range(lines.rows):
        pairs = lines.data[pair_offsets_in_data[i] : lines.ends[i]].tobytes().decode("utf-8", "replace")
        columns = set()
        for token in pairs.partition("#")[0].split():
            index, colon, value = token.partition(":")
            try:
                column = int(index)
                number = float(value)
            except ValueError:
                lines.fail(i, f"{token!r} is not index:value; every token after the label must be.")

            if not colon or not abs(number) <= LARGEST:
                lines.fail(i, f"{token!r}: the value must be finite and at most 1e100 in size.")
            if not 0 <= column - index_base < _WIDEST:
                lines.fail(i, f"index {column} is out of range; {_RANGE_MESSAGES[index_base]}")
            if column in columns:
                lines.fail(i, f"index {column} stands twice in this row.")
            columns.add(column)
