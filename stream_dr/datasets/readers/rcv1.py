"""rcv1: Reuters RCV1-v2 in its two public forms.

(a) LYRL2004 [Lewis, Yang, Rose, Li, JMLR 5, 2004]: vector files of `document  index:value …` lines, and one topics file
(`rcv1-v2.topics.qrels`) of `TOPIC document 1` lines for all documents. `read_lyrl2004` joins them by document number.
(b) What `sklearn.datasets.fetch_rcv1` returns: a sparse matrix, an indicator matrix, names. `read_indicator` takes that.

Memory: a group of rows, and 12 bytes for each line of the topics file (31 MB for all 804,414 documents), held sorted
because nothing promises that both files have the same order. Rows carry the document's number as id.
"""

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from stream_dr.datasets.readers.lines import BLOCK_ROWS, read_lines
from stream_dr.datasets.readers.pairs import parse_pairs
from stream_dr.disk import FileName
from stream_dr.errors import InvalidTargets, MalformedInput
from stream_dr.rows.block import Block
from stream_dr.targets.targets import Targets

RCV1_WIDTH = 47_236
"""Terms of RCV1-v2."""


class Topics:
    """Which topics a document has. labels: topics in order of first appearance."""

    def __init__(self, path: FileName) -> None:
        table: dict[str, int] = {}
        documents, codes = [], []
        for lines in read_lines(path, 100_000):
            document, code = np.empty(lines.rows, np.int64), np.empty(lines.rows, np.int32)
            for i in range(lines.rows):
                fields = lines.text(i).split()
                if len(fields) != 3 or not fields[1].isdigit():
                    lines.fail(i, "a line of a topics file is `TOPIC document 1`.")
                document[i], code[i] = int(fields[1]), table.setdefault(fields[0], len(table))
            documents.append(document)
            codes.append(code)
        if not documents:
            raise MalformedInput(f"{path} holds no topics; its lines are `TOPIC document 1`.", file=str(path))
        document, code = np.concatenate(documents), np.concatenate(codes)
        order = np.lexsort((code, document))
        self.labels = tuple(table)
        self._documents, self._codes = document[order], code[order]

    def of(self, documents: np.ndarray) -> Targets:
        """Return the label sets of documents (rows,) int64.

        A document that the file does not name has no target.
        """
        low = np.searchsorted(self._documents, documents, side="left")
        high = np.searchsorted(self._documents, documents, side="right")
        counts = high - low
        indptr = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        picks = np.repeat(low - indptr[:-1], counts) + np.arange(indptr[-1])
        present = counts > 0
        return Targets(
            "multilabel", self.labels, self._codes[picks], indptr, present=None if present.all() else present
        )


def read_lyrl2004(
    vectors: FileName | Sequence[FileName],
    topics: FileName,
    *,
    n_features: int | None = RCV1_WIDTH,
    rows: int = BLOCK_ROWS,
) -> Iterator[Block]:
    """Blocks of sparse float64 rows, topics as multilabel targets, document numbers as ids.

    vectors: one vector file or several, in the order given. topics: the qrels file. Indices count from 1, as published.
    Raises SourceMissing, and MalformedInput naming file and line.
    """
    known, width = Topics(topics), n_features or 0
    for path in [vectors] if isinstance(vectors, str | os.PathLike) else vectors:
        for lines in read_lines(path, rows):
            documents, begins = np.empty(lines.rows, np.int64), np.empty(lines.rows, np.int64)
            data = lines.data.tobytes()
            for i, (start, end) in enumerate(zip(lines.starts.tolist(), lines.ends.tolist(), strict=True)):
                stop = data.find(b" ", start, end)
                stop = end if stop < 0 else stop
                if not data[start:stop].isdigit():
                    lines.fail(i, f"{data[start:stop].decode('utf-8', 'replace')!r} is no document number.")
                documents[i], begins[i] = int(data[start:stop]), stop
            X = parse_pairs(lines, begins, 1, width)
            width = X.shape[1]
            ids = [str(d) for d in documents.tolist()]
            yield Block(X, known.of(documents), None, ids, width_stated=n_features is not None)


def read_indicator(
    X: Any, Y: Any, names: Sequence[str], ids: Sequence[Any] | None = None, rows: int = BLOCK_ROWS
) -> Iterator[Block]:
    """Yield blocks of rows X (n, features) with label sets.

    Y: indicator matrix (n, labels), with the names of its columns. For `bunch = fetch_rcv1()` call
    read_indicator(bunch.data, bunch.target, bunch.target_names, bunch.sample_id).

    Raises InvalidTargets if the shapes do not fit.
    """
    X, Y = sp.csr_matrix(X), sp.csr_matrix(Y)
    if X.shape[0] != Y.shape[0] or Y.shape[1] != len(names):
        raise InvalidTargets(
            f"{X.shape[0]} rows, an indicator of shape {Y.shape} and {len(names)} names do not fit together; "
            "pass one indicator row a row and one name a column."
        )
    X = X if X.dtype in (np.float32, np.float64) else X.astype(np.float64)
    X.sum_duplicates()
    Y.eliminate_zeros()
    Y.sort_indices()
    labels = tuple(str(name) for name in names)
    for at in range(0, X.shape[0], rows):
        part = Y[at : at + rows]
        targets = Targets("multilabel", labels, part.indices.astype(np.int32), part.indptr.astype(np.int64))
        shown = None if ids is None else [str(i) for i in ids[at : at + rows]]
        yield Block(X[at : at + rows], targets, None, shown)
