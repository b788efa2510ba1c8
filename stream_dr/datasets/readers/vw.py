"""Vowpal Wabbit: read lines `label |namespace index:value …`.

A line must have exactly one namespace. An index is the number of a column, from 0. A name in place
of an index is an error that names the line, because names would have to be hashed first.

An importance weight and a tag may follow the label (`1 0.5 'tag |f 3:1`). If the first line of the
file has an importance weight, the importance weights become the weights of the rows. If the first
line has no importance weight, all importance weights are ignored. Tags are always ignored.

About 1,000 lines are in memory at a time. One core reads about 2 million index:value pairs a
second.
"""

from collections.abc import Iterator
from contextlib import suppress

import numpy as np

from stream_dr.aliases import FileName
from stream_dr.datasets.readers.libsvm import raise_if_too_many_columns
from stream_dr.datasets.readers.lines import BLOCK_ROWS, LabelParser, Lines, read_line_groups
from stream_dr.datasets.readers.pairs import parse_index_value_pairs
from stream_dr.rows.block import Block


def read_vw(
    path: FileName,
    *,
    target: str = "auto",
    one_based: bool = False,
    n_features: int | None = None,
    rows_per_block: int = BLOCK_ROWS,
) -> Iterator[Block]:
    """Yield blocks of sparse float64 rows with their targets.

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
    width = n_features or 0
    is_weighted: bool | None = None
    for lines in read_line_groups(path, rows_per_block, comment_byte=b""):
        fields, weights, pair_starts = _labels_weights_and_pair_offsets(lines)
        X = parse_index_value_pairs(lines, pair_starts, int(one_based), width)
        raise_if_too_many_columns(lines, X, n_features)
        width = X.shape[1]

        if is_weighted is None:
            is_weighted = weights[0] is not None
        row_weights = np.array([1.0 if weight is None else weight for weight in weights]) if is_weighted else None
        yield Block(X, parser.parse(fields, lines.fail), row_weights, width_stated=n_features is not None)


def _labels_weights_and_pair_offsets(lines: Lines) -> tuple[list[str], list[float | None], np.ndarray]:
    """Split each line into label, weight and pairs.

    Returns three values:

    - The label field of each line, "" if a line has no label.
    - The weight of each line, None if a line has no weight.
    - The offset (lines,) in `lines.data` at which the index:value pairs of each line start.
    """
    fields = []
    weights = []
    pair_starts = np.empty(lines.rows, np.int64)
    data = lines.data.tobytes()
    for i, (start, end) in enumerate(zip(lines.starts.tolist(), lines.ends.tolist(), strict=True)):
        bar = data.find(b"|", start, end)
        if bar < 0:
            lines.fail(i, "there is no '|' between label and features; is this a libsvm file?")
        if data.find(b"|", bar + 1, end) >= 0:
            lines.fail(i, "several namespaces; one is taken. Number the features across namespaces first.")

        head = data[start:bar].decode("utf-8", "replace").split()
        fields.append(head[0] if head else "")
        weight: float | None = None
        if len(head) > 1:
            # A second field that is no number is a tag.
            with suppress(ValueError):
                weight = float(head[1])
        weights.append(weight)

        # The name of the namespace ends at the next blank.
        blank = data.find(b" ", bar, end)
        pair_starts[i] = blank if blank >= 0 else end
    return fields, weights, pair_starts
