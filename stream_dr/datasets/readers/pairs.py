"""Pairs: `index:value` text to CSR arrays, a group of lines together.

Costs O(bytes), at 2-4 million pairs a second on one core, and memory of a few times the group's
bytes.

Why this way: Arrow's compiled kernels split the bytes and parse the numbers. They round correctly
and are strict, while C's would stop at the first odd byte. Only a group that fails is parsed line
by line, to name the line.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp

from stream_dr.datasets.readers.lines import Lines
from stream_dr.rows.block import LARGEST

_WIDEST = 1 << 31
"""Upper bound on a column's index, which has 32 bits."""

COLON = ord(":")
SPACE = ord(" ")
COMMENT = ord("#")

_RANGE_MESSAGES = (
    f"columns are numbered from 0, below {_WIDEST}.",
    f"columns are numbered from 1, up to {_WIDEST}. Where a libsvm file numbers them from 0, give --zero-based "
    "(zero_based=True).",
)
"""Ends of the message for an index out of range, by the first column's number."""


def parse_pairs(lines: Lines, pair_starts: np.ndarray, first_index: int, width: int = 0) -> sp.csr_matrix:
    """Return rows (lines, columns) of `index:value` tokens, float64 with sorted indices.

    Parameters
    ----------
    lines : Lines
        Lines whose tokens are separated by blanks.
    pair_starts : ndarray (lines,)
        Position in `lines.data` at which each line's tokens start.
    first_index : 0 or 1
        Number that the file gives to the first column.
    width : int
        Minimum number of columns of the result.

    Raises MalformedInput that names the line.
    """
    try:
        return _parse(lines, pair_starts, first_index, width)
    except (pa.ArrowInvalid, _NotPairsError):
        _raise_for_first_bad_line(lines, pair_starts, first_index)
        raise


class _NotPairsError(Exception):
    """Some line of a group is not pairs of a row."""


def _parse(lines: Lines, pair_starts: np.ndarray, first_index: int, width: int) -> sp.csr_matrix:
    """Return the rows of a group.

    Raises ArrowInvalid or _NotPairsError, neither of which says in which line.
    """
    n_tokens, text = _count_tokens(lines, pair_starts)
    colons_before = np.concatenate(([0], np.cumsum(text == COLON)))
    n_pairs = colons_before[lines.ends] - colons_before[pair_starts]
    if np.any(n_tokens != 2 * n_pairs):
        raise _NotPairsError

    text[text == COLON] = SPACE
    numbers = _parse_numbers(text)
    if len(numbers) != n_tokens.sum():
        raise _NotPairsError

    indices = numbers[0::2] - first_index
    values = np.ascontiguousarray(numbers[1::2])
    if not np.all((indices >= 0) & (indices < _WIDEST) & (indices == np.floor(indices))):
        raise _NotPairsError
    # This comparison is false for NaN.
    if not np.all(np.abs(values) <= LARGEST):
        raise _NotPairsError

    indptr = np.concatenate(([0], np.cumsum(n_pairs)))
    columns = max(width, int(indices.max(initial=-1)) + 1)
    X = sp.csr_matrix((values, indices.astype(np.int32), indptr.astype(np.int32)), shape=(lines.rows, columns))
    if not X.has_sorted_indices:
        X.sort_indices()
    # An index stands twice in a row.
    if not X.has_canonical_format:
        raise _NotPairsError
    return X


def _count_tokens(lines: Lines, pair_starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of tokens of each line (lines,), and the cleaned bytes.

    A colon counts as a blank. Bytes outside the pairs, and in comments, are blank.
    """
    text = lines.data.copy()

    # The running sum of the edges is 1 within pairs and 0 elsewhere.
    edges = np.zeros(len(text) + 1, np.int8)
    edges[pair_starts] += 1
    np.subtract.at(edges, lines.ends, 1)
    text[np.cumsum(edges[:-1], dtype=np.int8) == 0] = SPACE

    comments = np.flatnonzero(text == COMMENT)
    if len(comments):
        _blank_comments(text, comments, lines)

    # A token starts where a solid byte follows a blank.
    solid = (text > SPACE) & (text != COLON)
    token_starts = solid.copy()
    token_starts[1:] &= ~solid[:-1]
    tokens_before = np.concatenate(([0], np.cumsum(token_starts)))
    return tokens_before[lines.ends] - tokens_before[pair_starts], text


def _blank_comments(text: np.ndarray, comments: np.ndarray, lines: Lines) -> None:
    """Blank each line from its comment on, in place."""
    for start in comments.tolist():
        line = int(np.searchsorted(lines.starts, start, side="right")) - 1
        text[start : lines.ends[line]] = SPACE


def _parse_numbers(text: np.ndarray) -> np.ndarray:
    """Return all numbers in blank-separated text, float64."""
    # The bytes become one Arrow string without a copy.
    offsets = pa.py_buffer(np.array([0, len(text)], np.int64))
    strings = pa.Array.from_buffers(pa.large_string(), 1, [None, offsets, pa.py_buffer(text)])
    tokens = pc.ascii_split_whitespace(pc.ascii_trim_whitespace(strings)).values

    if len(tokens) == 1 and tokens[0].as_py() == "":
        return np.zeros(0)
    return tokens.cast(pa.float64()).to_numpy(zero_copy_only=False)


def _raise_for_first_bad_line(lines: Lines, pair_starts: np.ndarray, first_index: int) -> None:
    """Raise MalformedInput for the first line that is not pairs of a row."""
    for i in range(lines.rows):
        text = lines.data[pair_starts[i] : lines.ends[i]].tobytes().decode("utf-8", "replace").partition("#")[0]
        columns = set()
        for token in text.split():
            index, colon, value = token.partition(":")
            try:
                column = int(index)
                number = float(value)
            except ValueError:
                lines.fail(i, f"{token!r} is not index:value; every token after the label must be.")

            if not colon or not abs(number) <= LARGEST:
                lines.fail(i, f"{token!r}: the value must be finite and at most 1e100 in size.")
            if not 0 <= column - first_index < _WIDEST:
                lines.fail(i, f"index {column} is out of range; {_RANGE_MESSAGES[first_index]}")
            if column in columns:
                lines.fail(i, f"index {column} stands twice in this row.")
            columns.add(column)
