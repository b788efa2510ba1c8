"""Read text files with pairs `index:value` (libsvm, svmlight, Vowpal Wabbit).

A line of libsvm is `label index:value …`. Several labels are separated by commas (`1,5,7 3:0.5`).
A line that begins with `index:value`, or with a blank, has no label. Fields `qid:…` and comments
after `#` are skipped. Columns are numbered from 1, or from 0 if `zero_based` is True.

A line of Vowpal Wabbit is `label |namespace index:value …`. A line must have exactly one
namespace. An index is the number of a column, from 0. A name in place of an index is an error that
names the line, because names would have to be hashed first.

An importance weight and a tag may follow the label (`1 0.5 'tag |f 3:1`). If the first line of the
file has an importance weight, the importance weights become the weights of the rows. If the first
line has no importance weight, all importance weights are ignored. Tags are always ignored.

The pairs of many lines are parsed at once. They become a CSR matrix. Arrow's compiled functions
split the bytes and parse the numbers. They round numbers correctly and raise an error for any text
that is not a number. After an error, the lines are parsed again one by one in Python, to find the
line with the error.

About 1,000 lines are in memory at a time. One core reads about 2 million index:value pairs a
second.
"""

import re
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp

from stream_dr.aliases import FileName
from stream_dr.batch.block import LARGEST, Block
from stream_dr.batch.sparse import row_of_entry
from stream_dr.datasets.readers.lines import BLOCK_ROWS, LabelParser, Lines, read_line_groups

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


def read_heads_and_pairs(
    path: FileName,
    head: re.Pattern[bytes],
    fault: str,
    index_base: int,
    n_features: int | None,
    rows_per_block: int,
    comment_byte: bytes = b"#",
) -> Iterator[tuple[Lines, list[str], sp.csr_matrix]]:
    """Yield lines with their heads and their index:value pairs.

    The head of a line is its text before the pairs, such as a label. The pairs become a CSR matrix
    float64 (lines, columns). The column indices of each row are sorted.

    Parameters
    ----------
    path : path
        File to read.
    head : pattern
        Pattern of the start of a line, up to the pairs. Its group 1 is the head.
    fault : str
        Fault of a line without such a start, for the error message.
    index_base : 0 or 1
        Number of the first column in the file.
    n_features : int or None
        Number of columns. None: a matrix has as many columns as have occurred so far in the file.
    rows_per_block : int
        Maximum number of lines to yield at a time.
    comment_byte : bytes
        Byte that starts a comment line. b"" means that there are no comments.

    Raises SourceMissing, and MalformedInput, which names the file and the line.
    """
    width = n_features or 0
    for lines in read_line_groups(path, rows_per_block, comment_byte):
        heads = []
        pair_starts = np.empty(lines.rows, np.int64)
        data = lines.data.tobytes()
        spans = zip(lines.starts.tolist(), lines.ends.tolist(), strict=True)
        for i, (start, end) in enumerate(spans):
            match = head.match(data, start, end)
            if match is None:
                lines.fail(i, f"{lines.text(i)[:40]!r} {fault}")
            heads.append(match[1].decode("utf-8", "replace"))
            pair_starts[i] = match.end()

        try:
            X = _parse_all_lines(lines, pair_starts, index_base, width)
        # These errors do not name the line, so search it. `_check_pairs` raises an error that does.
        except (pa.ArrowInvalid, _NotPairsError):
            _check_pairs(lines, pair_starts, index_base)
            raise
        width = X.shape[1]
        if n_features is not None and width > n_features:
            entry = int(np.argmax(X.indices >= n_features))
            row = row_of_entry(X.indptr, entry)
            lines.fail(row, f"column {int(X.indices[entry])} (from 0) is past n_features = {n_features}.")
        yield lines, heads, X


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
    # A token is a run of bytes other than blanks and colons. `edges` are the offsets at which
    # tokens start and end, in turn.
    text = _blank_all_but_pairs(lines, pair_offsets_in_data)
    in_token = (text > SPACE) & (text != COLON)
    edges = np.flatnonzero(np.diff(in_token, prepend=False, append=False))
    starts = edges[0::2]
    ends = edges[1::2]

    # Every second token is the value of a pair. A colon stands between it and the token before, and
    # there are no other colons.
    colons = np.flatnonzero(text == COLON)
    if not (np.array_equal(ends[0::2], colons) and np.array_equal(starts[1::2], colons + 1)):
        raise _NotPairsError
    n_pairs = np.searchsorted(colons, lines.ends) - np.searchsorted(colons, pair_offsets_in_data)

    # Parse all tokens as numbers. Every second number is an index.
    text[colons] = SPACE
    numbers = _parse_blank_separated_numbers(text)
    if len(numbers) != len(starts):
        raise _NotPairsError

    indices = numbers[0::2] - index_base
    values = np.ascontiguousarray(numbers[1::2])
    in_range = (indices >= 0) & (indices < _WIDEST)
    if not np.all(in_range & (indices == np.floor(indices))):
        raise _NotPairsError
    # NaN is refused too, because every comparison with NaN is False.
    if not np.all(np.abs(values) <= LARGEST):
        raise _NotPairsError

    indptr = np.concatenate(([0], np.cumsum(n_pairs)))
    columns = max(min_width, int(indices.max(initial=-1)) + 1)
    parts = (values, indices.astype(np.int32), indptr.astype(np.int32))
    X = sp.csr_matrix(parts, shape=(lines.rows, columns))
    if not X.has_sorted_indices:
        X.sort_indices()
    # The matrix is not in canonical format if a row has the same index twice.
    if not X.has_canonical_format:
        raise _NotPairsError
    return X


def _blank_all_but_pairs(lines: Lines, pair_offsets_in_data: np.ndarray) -> np.ndarray:
    """Return a copy of the lines' bytes, with blanks in place of labels and comments.

    pair_offsets_in_data: (lines,). Offset in `lines.data` at which the pairs of each line start.
    """
    text = lines.data.copy()

    # Write +1 where the pairs of a line start, and −1 where the pairs end.
    # The running sum of `edges` is then 1 within pairs and 0 elsewhere.
    edges = np.zeros(len(text) + 1, np.int8)
    # The offsets of a line without pairs are equal, so its +1 and −1 cancel.
    edges[pair_offsets_in_data] += 1
    edges[lines.ends] -= 1
    text[np.cumsum(edges[:-1], dtype=np.int8) == 0] = SPACE

    # A comment after the pairs reaches to the end of its line.
    for start in np.flatnonzero(text == COMMENT).tolist():
        line = int(np.searchsorted(lines.starts, start, side="right")) - 1
        text[start : lines.ends[line]] = SPACE
    return text


def _parse_blank_separated_numbers(text_bytes: np.ndarray) -> np.ndarray:
    """Parse numbers that are separated by blanks, as float64.

    text_bytes: bytes of the numbers.
    """
    # Build an Arrow array with one string from the bytes, without a copy. Its three buffers are
    # the validity (none), the offsets of the string's start and end, and the bytes.
    offsets = pa.py_buffer(np.array([0, len(text_bytes)], np.int64))
    strings = pa.Array.from_buffers(pa.large_string(), 1, [None, offsets, pa.py_buffer(text_bytes)])
    tokens = pc.ascii_split_whitespace(pc.ascii_trim_whitespace(strings)).values

    if len(tokens) == 1 and tokens[0].as_py() == "":
        return np.zeros(0)
    numbers: np.ndarray = tokens.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return numbers


def _check_pairs(lines: Lines, pair_offsets_in_data: np.ndarray, index_base: int) -> None:
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

            # `not … <=` is also true for NaN.
            if not colon or not abs(number) <= LARGEST:
                lines.fail(i, f"{token!r}: the value must be finite and at most 1e100 in size.")
            # The columns of the matrix are numbered from 0, those of the file from `index_base`.
            if not 0 <= column - index_base < _WIDEST:
                lines.fail(i, f"index {column} is out of range; {_RANGE_MESSAGES[index_base]}")
            if column in columns:
                lines.fail(i, f"index {column} stands twice in this row.")
            columns.add(column)


_LIBSVM_HEAD = re.compile(rb"([^ \t:]*(?![^ \t])|)(?:[ \t]qid:[^ ]*)?")
"""Label and query of a line. A line that begins with index:value has an empty label."""

_VW_HEAD = re.compile(rb"([^|]*)\|(?=[^|]*\Z)[^ ]*")
"""Label, weight and tag of a line, and the name of its namespace."""


def read_libsvm(
    path: FileName,
    *,
    target: str = "auto",
    zero_based: bool = False,
    n_features: int | None = None,
    rows_per_block: int = BLOCK_ROWS,
) -> Iterator[Block]:
    """Yield blocks of the sparse float64 rows of a libsvm file, with their targets.

    Parameters
    ----------
    path : path
        File to read, which may be compressed (.gz, .bz2, .xz, archive.zip!member).
    target : str
        Kind of the targets. "auto": the first rows decide.
    zero_based : bool
        True if the file numbers columns from 0.
    n_features : int or None
        Number of columns. None: a block has as many columns as have occurred so far in the file.
    rows_per_block : int
        Number of rows in a block.

    Raises SourceMissing, and MalformedInput, which names the file and the line.
    """
    parser = LabelParser(target)
    base = 0 if zero_based else 1
    for lines, fields, X in read_heads_and_pairs(path, _LIBSVM_HEAD, "has no label.", base, n_features, rows_per_block):
        yield Block(X, parser.parse(fields, lines), width_stated=n_features is not None)


def read_vw(
    path: FileName,
    *,
    target: str = "auto",
    one_based: bool = False,
    n_features: int | None = None,
    rows_per_block: int = BLOCK_ROWS,
) -> Iterator[Block]:
    """Yield blocks of the sparse float64 rows of a Vowpal Wabbit file, with their targets.

    Rows have weights if the first line of the file has a weight.

    Parameters
    ----------
    path : path
        File to read, which may be compressed (.gz, .bz2, .xz, archive.zip!member).
    target : str
        Kind of the targets. "auto": the first rows decide.
    one_based : bool
        True if the file numbers columns from 1.
    n_features : int or None
        Number of columns. None: a block has as many columns as have occurred so far in the file.
    rows_per_block : int
        Number of rows in a block.

    Raises SourceMissing, and MalformedInput, which names the file and the line.
    """
    parser = LabelParser(target)
    is_weighted: bool | None = None
    fault = "has no '|' (is this a libsvm file?) or several namespaces; number the features across namespaces first."
    # A file of Vowpal Wabbit has no comments, so no byte begins one (b"").
    parsed = read_heads_and_pairs(path, _VW_HEAD, fault, int(one_based), n_features, rows_per_block, comment_byte=b"")
    for lines, heads, X in parsed:
        # A head is "label weight tag". The weight and the tag may be missing.
        words = [head.split() for head in heads]
        weights = [_parse_weight(words_of_row[1:2]) for words_of_row in words]
        # The first line of the file decides if rows have weights. A missing weight is then 1.
        if is_weighted is None:
            is_weighted = weights[0] is not None
        row_weights = None
        if is_weighted:
            given_or_1 = [1.0 if weight is None else weight for weight in weights]
            row_weights = np.array(given_or_1)
        # The label is the first word, or "" if the head is empty.
        fields = ["".join(words_of_row[:1]) for words_of_row in words]
        yield Block(X, parser.parse(fields, lines), row_weights, width_stated=n_features is not None)


def _parse_weight(second_word: list[str]) -> float | None:
    """Return the row's weight, or None if the word is a tag or the list is empty."""
    with suppress(ValueError, IndexError):
        return float(second_word[0])
    return None
