"""few_labels: a string column of few distinct labels → their codes, in one compiled pass.

Cost: 25 to 60 µs for 1,000 labels of which 4 are distinct. Each row is compared with the labels met so far, FEW at most, so
a column of ROWS rows of SHORT bytes on average takes ROWS · FEW · SHORT comparisons of bytes at worst, 1 ms; longer columns,
longer labels and more of them are Arrow's to encode, which looks at each row once.

Why this way: Arrow's dictionary encoding is made for any number of labels; for those 1,000 it took a third longer, and
0.1 ms longer where other work had taken the processor's cache meanwhile, as it has in a service. 1 MB batches of sparse rows
with one of four labels came in 3 to 7 % faster over HTTP (`python benchmarks/service.py ingest --estimator lda`).
"""

import numpy as np
import pyarrow as pa

from stream_dr.compiled import compiled, readonly

FEW = 8
"""Distinct labels of a column that is encoded here, at most; of 10, Arrow's encoding takes as long."""

ROWS = 2_048
"""Rows of such a column, at most: what Arrow's encoding takes for a row is less, what it takes to begin is more."""

SHORT = 32
"""Bytes that its labels have on average, at most."""


def few_labels(column: pa.StringArray) -> tuple[tuple[str, ...], np.ndarray] | None:
    """Distinct labels of a column without nulls in order of first appearance, and int32 codes (rows,); None where they are
    many, long or all empty, or their rows many."""
    if not 0 < len(column) <= ROWS:
        return None
    _, ends, text = column.buffers()
    if text is None:
        return None
    bounds = np.frombuffer(ends, np.int32, len(column) + 1, 4 * column.offset)
    if bounds[-1] - bounds[0] > SHORT * len(column):
        return None
    first, codes = _encode_few(readonly(bounds), readonly(np.frombuffer(text, np.uint8)))
    return (tuple([column[row].as_py() for row in first.tolist()]), codes) if len(first) else None


@compiled()
def _encode_few(bounds: np.ndarray, text: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows in which labels appear first, and the code of each row's; no rows where there are more than FEW.

    bounds (rows + 1,): where each row's label begins in `text`, and where the last one ends.
    """
    first, codes, known = np.empty(FEW, np.int64), np.empty(len(bounds) - 1, np.int32), 0
    for row in range(len(codes)):
        code = 0
        while code < known and not _same(bounds, text, first[code], row):
            code += 1
        if code == known:
            if known == FEW:
                return first[:0], codes
            first[known] = row
            known += 1
        codes[row] = code
    return first[:known], codes


@compiled(forceinline=True)
def _same(bounds: np.ndarray, text: np.ndarray, one: int, other: int) -> bool:
    """Whether two rows have the same label."""
    size, a, b = bounds[one + 1] - bounds[one], bounds[one], bounds[other]
    if bounds[other + 1] - b != size:
        return False
    at = 0
    while at < size and text[a + at] == text[b + at]:
        at += 1
    return at == size
