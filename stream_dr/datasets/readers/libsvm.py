"""Libsvm: read files with lines `label index:value …` (libsvm, svmlight).

Several labels are separated by commas (`1,5,7 3:0.5`). A line that begins with `index:value`, or
with a blank, has no label. Fields `qid:…` and comments after `#` are skipped. Columns are numbered
from 1, or from 0 if `zero_based` is True.

About 1,000 lines are in memory at a time. One core reads about 2 million index:value pairs a
second.
"""

import re
from collections.abc import Iterator

import numpy as np

from stream_dr.aliases import FileName
from stream_dr.datasets.readers.lines import BLOCK_ROWS, LabelParser, Lines, read_line_groups
from stream_dr.datasets.readers.pairs import parse_index_value_pairs
from stream_dr.rows.block import Block, Rows

_BLANK = re.compile(rb"[ \t]")


def read_libsvm(
    path: FileName,
    *,
    target: str = "auto",
    zero_based: bool = False,
    n_features: int | None = None,
    rows_per_block: int = BLOCK_ROWS,
) -> Iterator[Block]:
    """Yield blocks of sparse float64 rows with their targets.

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
    width = n_features or 0
    for lines in read_line_groups(path, rows_per_block):
        fields, pair_starts = labels_and_pair_offsets(lines)
        X = parse_index_value_pairs(lines, pair_starts, 0 if zero_based else 1, width)
        raise_if_too_many_columns(lines, X, n_features)
        width = X.shape[1]
        yield Block(X, parser.parse(fields, lines.fail), width_stated=n_features is not None)


def labels_and_pair_offsets(lines: Lines) -> tuple[list[str], np.ndarray]:
    """Split each line into its label field and its pairs.

    Returns two values:

    - The label field of each line, "" if a line has no label.
    - The offset (lines,) in `lines.data` at which the index:value pairs of each line start.
    """
    fields = []
    pair_starts = np.empty(lines.rows, np.int64)
    data = lines.data.tobytes()
    for i, (start, end) in enumerate(zip(lines.starts.tolist(), lines.ends.tolist(), strict=True)):
        blank = _BLANK.search(data, start, end)
        stop = blank.start() if blank else end
        field = data[start:stop]

        # A line that begins with index:value has no label.
        # Skip a field qid:… after the label.
        if b":" in field:
            field = b""
            stop = start
        elif data[stop + 1 : stop + 5] == b"qid:":
            after_qid = data.find(b" ", stop + 1, end)
            stop = after_qid if after_qid >= 0 else end

        fields.append(field.decode("utf-8", "replace"))
        pair_starts[i] = stop
    return fields, pair_starts


def raise_if_too_many_columns(lines: Lines, X: Rows, n_features: int | None) -> None:
    """Raise MalformedInput if a row has an undeclared column.

    The index of an undeclared column is at least n_features. The error names the first line with
    an undeclared column.

    lines: lines of the rows, for the error message.
    X: rows that were parsed from the lines.
    n_features: declared number of columns. None: any number is allowed.
    """
    if n_features is None or X.shape[1] <= n_features:
        return
    entry = int(np.argmax(X.indices >= n_features))
    row = int(np.searchsorted(X.indptr, entry, side="right")) - 1
    lines.fail(row, f"column {int(X.indices[entry])} (from 0) is past n_features = {n_features}.")
