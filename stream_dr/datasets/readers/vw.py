"""Vowpal Wabbit: `label |namespace index:value …` lines.

There is one namespace a line. Tokens are index:value with whole-number indices, which are the
columns, from 0. Named features need a hashing map first and are refused with their line. A label
may be followed by an importance weight and a tag (`1 0.5 'tag |f 3:1`). The weight is the row's
weight if the first line has one. The tag is ignored. Memory: one group of rows. About 2 million
pairs a second on one core.
"""

from collections.abc import Iterator

import numpy as np

from stream_dr.datasets.readers.labels import LabelFields
from stream_dr.datasets.readers.libsvm import check_stated_width
from stream_dr.datasets.readers.lines import BLOCK_ROWS, Lines, read_lines
from stream_dr.datasets.readers.pairs import parse_pairs
from stream_dr.disk import FileName
from stream_dr.rows.block import Block


def read_vw(
    path: FileName,
    *,
    target: str = "auto",
    one_based: bool = False,
    n_features: int | None = None,
    rows: int = BLOCK_ROWS,
) -> Iterator[Block]:
    """Blocks of sparse float64 rows with targets, and weights where lines carry them.

    one_based: columns are numbered from 1. Raises SourceMissing, and MalformedInput naming file and line.
    """
    parser, width = LabelFields(target), n_features or 0
    weighted: bool | None = None
    for lines in read_lines(path, rows, comment=b""):
        fields, weights, begins = _heads(lines)
        X = parse_pairs(lines, begins, int(one_based), width)
        check_stated_width(lines, X, n_features)
        width = X.shape[1]
        weighted = weights[0] is not None if weighted is None else weighted
        yield Block(
            X, parser.parse(fields, lines.fail), _weights(weights, weighted), width_stated=n_features is not None
        )


def _heads(lines: Lines) -> tuple[list[str], list[float | None], np.ndarray]:
    """Labels, weights (None where absent) and where the pairs begin."""
    fields, weights, begins = [], [], np.empty(lines.rows, np.int64)
    data = lines.data.tobytes()
    for i, (start, end) in enumerate(zip(lines.starts.tolist(), lines.ends.tolist(), strict=True)):
        bar = data.find(b"|", start, end)
        if bar < 0:
            lines.fail(i, "there is no '|' between label and features; is this a libsvm file?")
        if data.find(b"|", bar + 1, end) >= 0:
            lines.fail(i, "several namespaces; one is taken. Number the features across namespaces first.")
        head = data[start:bar].decode("utf-8", "replace").split()
        fields.append(head[0] if head else "")
        weights.append(_number(head[1]) if len(head) > 1 else None)
        blank = data.find(b" ", bar, end)
        begins[i] = blank if blank >= 0 else end
    return fields, weights, begins


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _weights(weights: list[float | None], weighted: bool) -> np.ndarray | None:
    """Return weights (rows,) float64.

    A row without a weight counts as 1, as in Vowpal Wabbit.
    """
    return np.array([1.0 if w is None else w for w in weights]) if weighted else None
