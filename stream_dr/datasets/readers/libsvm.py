"""Libsvm: `label index:value …` lines (libsvm, svmlight).

Several labels are separated by commas (`1,5,7 3:0.5`). A line that begins with a pair, or with a
blank, has no label. `qid:…` fields and comments after `#` are skipped. Columns are numbered from 1
unless `zero_based`. Memory: one group of rows. About 2 million pairs a second on one core.
"""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from stream_dr.datasets.readers.labels import LabelFields
from stream_dr.datasets.readers.lines import BLOCK_ROWS, Lines, read_lines
from stream_dr.datasets.readers.pairs import parse_pairs
from stream_dr.disk import FileName
from stream_dr.rows.block import Block

_BLANK = re.compile(rb"[ \t]")


def read_libsvm(
    path: FileName,
    *,
    target: str = "auto",
    zero_based: bool = False,
    n_features: int | None = None,
    rows: int = BLOCK_ROWS,
) -> Iterator[Block]:
    """Yield blocks of sparse float64 rows with their targets.

    target: kind of targets, or "auto", by which the first rows decide. n_features: declared width.
    Without it a block's width is the largest column so far.

    Raises SourceMissing, and MalformedInput that names file and line.
    """
    parser, width = LabelFields(target), n_features or 0
    for lines in read_lines(path, rows):
        fields, begins = label_fields(lines)
        X = parse_pairs(lines, begins, 0 if zero_based else 1, width)
        check_stated_width(lines, X, n_features)
        width = X.shape[1]
        yield Block(X, parser.parse(fields, lines.fail), width_stated=n_features is not None)


def label_fields(lines: Lines) -> tuple[list[str], np.ndarray]:
    """Each line's label field ("" where there is none) and where its pairs begin."""
    fields, begins = [], np.empty(lines.rows, np.int64)
    data = lines.data.tobytes()
    for i, (start, end) in enumerate(zip(lines.starts.tolist(), lines.ends.tolist(), strict=True)):
        blank = _BLANK.search(data, start, end)
        stop = blank.start() if blank else end
        field = data[start:stop]
        if b":" in field:
            field, stop = b"", start
        elif data[stop + 1 : stop + 5] == b"qid:":
            after = data.find(b" ", stop + 1, end)
            stop = after if after >= 0 else end
        fields.append(field.decode("utf-8", "replace"))
        begins[i] = stop
    return fields, begins


def check_stated_width(lines: Lines, X: Any, n_features: int | None) -> None:
    """Raise MalformedInput for the first line with a column past the stated width."""
    if n_features is None or X.shape[1] <= n_features:
        return
    entry = int(np.argmax(X.indices >= n_features))
    row = int(np.searchsorted(X.indptr, entry, side="right")) - 1
    lines.fail(row, f"column {int(X.indices[entry])} (from 0) is past n_features = {n_features}.")
