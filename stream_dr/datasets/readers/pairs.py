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
"""Indices are 32 bits wide."""

COLON, SPACE, COMMENT = 58, 32, 35

_NUMBERED = (
    f"columns are numbered from 0, below {_WIDEST}.",
    f"columns are numbered from 1, up to {_WIDEST}. Where a libsvm file numbers them from 0, give --zero-based "
    "(zero_based=True).",
)


def parse_pairs(lines: Lines, begins: np.ndarray, first_index: int, width: int = 0) -> sp.csr_matrix:
    """Rows (lines, columns) of `index:value` tokens separated by blanks, float64, indices sorted.

    begins: (lines,) where each line's tokens begin. first_index: the number the file gives the first column (0 or 1).
    width: columns to have at least. Raises MalformedInput naming the line.
    """
    try:
        return _parse(lines, begins, first_index, width)
    except (pa.ArrowInvalid, _Refused):
        _name_the_line(lines, begins, first_index)
        raise


class _Refused(Exception):
    pass


def _parse(lines: Lines, begins: np.ndarray, first_index: int, width: int) -> sp.csr_matrix:
    tokens, text = _tokens(lines, begins)
    inside = np.concatenate(([0], np.cumsum(text == COLON)))
    colons = inside[lines.ends] - inside[begins]
    if np.any(tokens != 2 * colons):
        raise _Refused
    text[text == COLON] = SPACE
    numbers = _numbers(text)
    if len(numbers) != tokens.sum():
        raise _Refused
    indices, values = numbers[0::2] - first_index, np.ascontiguousarray(numbers[1::2])
    if not np.all((indices >= 0) & (indices < _WIDEST) & (indices == np.floor(indices))):
        raise _Refused
    if not np.all(np.abs(values) <= LARGEST):  # NaN is not
        raise _Refused
    indptr = np.concatenate(([0], np.cumsum(colons)))
    columns = max(width, int(indices.max(initial=-1)) + 1)
    X = sp.csr_matrix((values, indices.astype(np.int32), indptr.astype(np.int32)), shape=(lines.rows, columns))
    if not X.has_sorted_indices:
        X.sort_indices()
    if not X.has_canonical_format:
        raise _Refused
    return X


def _tokens(lines: Lines, begins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of tokens of each line (lines,), and the cleaned bytes.

    A colon counts as a blank. Bytes outside [begins, ends) are blank.
    """
    text = lines.data.copy()
    edges = np.zeros(len(text) + 1, np.int8)
    edges[begins] += 1
    np.subtract.at(edges, lines.ends, 1)
    text[np.cumsum(edges[:-1], dtype=np.int8) == 0] = SPACE
    comments = np.flatnonzero(text == COMMENT)
    if len(comments):
        _blank_comments(text, comments, lines)
    solid = (text > SPACE) & (text != COLON)
    heads = solid.copy()
    heads[1:] &= ~solid[:-1]
    before = np.concatenate(([0], np.cumsum(heads)))
    return before[lines.ends] - before[begins], text


def _blank_comments(text: np.ndarray, comments: np.ndarray, lines: Lines) -> None:
    for at in comments.tolist():
        line = int(np.searchsorted(lines.starts, at, side="right")) - 1
        text[at : lines.ends[line]] = SPACE


def _numbers(text: np.ndarray) -> np.ndarray:
    """All numbers in blank-separated text."""
    strings = pa.Array.from_buffers(
        pa.large_string(), 1, [None, pa.py_buffer(np.array([0, len(text)], np.int64)), pa.py_buffer(text)]
    )
    tokens = pc.ascii_split_whitespace(pc.ascii_trim_whitespace(strings)).values
    if len(tokens) == 1 and tokens[0].as_py() == "":
        return np.zeros(0)
    return tokens.cast(pa.float64()).to_numpy(zero_copy_only=False)


def _name_the_line(lines: Lines, begins: np.ndarray, first_index: int) -> None:
    """Raise MalformedInput for the first line that is not as it should be."""
    for i in range(lines.rows):
        one = lines.data[begins[i] : lines.ends[i]].tobytes().decode("utf-8", "replace").partition("#")[0]
        seen = set()
        for token in one.split():
            index, colon, value = token.partition(":")
            try:
                column, number = int(index), float(value)
            except ValueError:
                lines.fail(i, f"{token!r} is not index:value; every token after the label must be.")
            if not colon or not abs(number) <= LARGEST:
                lines.fail(i, f"{token!r}: the value must be finite and at most 1e100 in size.")
            if not 0 <= column - first_index < _WIDEST:
                lines.fail(i, f"index {column} is out of range; {_NUMBERED[first_index]}")
            if column in seen:
                lines.fail(i, f"index {column} stands twice in this row.")
            seen.add(column)
