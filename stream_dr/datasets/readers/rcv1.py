"""RCV1: read the data set Reuters RCV1-v2.

The data set is published in two forms:

- LYRL2004 [Lewis, Yang, Rose, Li, JMLR 5, 2004] has vector files with lines
  `document  index:value …`, and one topics file (`rcv1-v2.topics.qrels`) with lines
  `TOPIC document 1`. `read_lyrl2004` finds the topics of a row by the number of its document.
- `sklearn.datasets.fetch_rcv1` returns a sparse matrix of rows, a matrix with 1 where a row has a
  topic, and the names of the topics. `read_indicator_matrix` reads these.

The id of a row is the number of its document.

About 1,000 rows are in memory at a time. In addition, the whole topics file is in memory, with 12
bytes for each line (31 MB for all 804,414 documents).
"""

import os
import re
from collections.abc import Iterator, Sequence

import numpy as np
import scipy.sparse as sp

from stream_dr.aliases import FileName
from stream_dr.batch.block import Block, Rows
from stream_dr.batch.targets import Targets, indicator_targets
from stream_dr.datasets.readers.libsvm import read_heads_and_pairs
from stream_dr.datasets.readers.lines import BLOCK_ROWS, read_line_groups
from stream_dr.datasets.readers.matrices import split_block
from stream_dr.errors import InvalidTargets, MalformedInput

RCV1_WIDTH = 47_236
"""Number of terms of RCV1-v2."""

_DOCUMENT = re.compile(rb"(\d{1,18})(?![^ ])")
"""Number of the document at the start of a line."""


class DocumentTopics:
    """Labels of all documents of RCV1, read from a file.

    path: path of the file.

    Attributes
    ----------
    labels : tuple of str
        Names of the topics, in the order in which they first appear in the file.
    """

    def __init__(self, path: FileName) -> None:
        # Each line has a topic and a document. Topics get the codes 0, 1, 2 and so on, in the order
        # in which they first occur. `all_documents` and `all_codes` have the document and the code
        # of each line.
        code_by_topic: dict[str, int] = {}
        all_documents = []
        all_codes = []
        for lines in read_line_groups(path, 100_000):
            documents = np.empty(lines.rows, np.int64)
            codes = np.empty(lines.rows, np.int32)
            for i in range(lines.rows):
                fields = lines.text(i).split()
                if len(fields) != 3 or not fields[1].isdigit():
                    lines.fail(i, "a line of a topics file is `TOPIC document 1`.")
                documents[i] = int(fields[1])
                codes[i] = code_by_topic.setdefault(fields[0], len(code_by_topic))
            all_documents.append(documents)
            all_codes.append(codes)

        if not all_documents:
            raise MalformedInput(f"{path} holds no topics; its lines are `TOPIC document 1`.", file=str(path))
        documents = np.concatenate(all_documents)
        codes = np.concatenate(all_codes)
        # Sort by document and then by code, so that the topics of a document are contiguous.
        order = np.lexsort((codes, documents))
        self.labels = tuple(code_by_topic)
        self._documents = documents[order]
        self._codes = codes[order]

    def targets_for(self, document_numbers: np.ndarray) -> Targets:
        """Return the topics of documents as multilabel Targets.

        document_numbers: numbers of the documents, (rows,) int64. A document that is not in the
            topics file has no target.
        """
        # Entry i of the arrays says that the document _documents[i] has the topic _codes[i]. They
        # are sorted by document, so the topics of a document are the entries low to high − 1.
        low = np.searchsorted(self._documents, document_numbers, side="left")
        high = np.searchsorted(self._documents, document_numbers, side="right")
        counts = high - low
        indptr = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        # `picks` has the indices low, low + 1, …, high − 1 of each document, one after the other.
        # For example, low = (4, 0) and high = (6, 1) give (4, 5, 0).
        picks = np.repeat(low - indptr[:-1], counts) + np.arange(indptr[-1])

        present = counts > 0
        # `present` may be left out (None) if every row has a target.
        present_or_none = None if present.all() else present
        return Targets("multilabel", self.labels, self._codes[picks], indptr, present=present_or_none)


def read_lyrl2004(
    vector_paths: FileName | Sequence[FileName],
    topics: FileName,
    *,
    n_features: int | None = RCV1_WIDTH,
    rows_per_block: int = BLOCK_ROWS,
) -> Iterator[Block]:
    """Yield the rows of the LYRL2004 files in blocks.

    The rows are sparse float64. The topics of a row are its labels, and the number of its document
    is its id. The columns are numbered from 1 in the files.

    Parameters
    ----------
    vector_paths : path or sequence of paths
        Vector files, read in this order.
    topics : path
        Path of the file of topics (rcv1-v2.topics.qrels).
    n_features : int or None
        Number of columns. None: a block has as many columns as have occurred so far in the file.
    rows_per_block : int
        Number of rows in a block.

    Raises SourceMissing, and MalformedInput, which names the file and the line.
    """
    topics_by_document = DocumentTopics(topics)
    fault = "begins with no document number."
    if isinstance(vector_paths, str | os.PathLike):
        vector_paths = [vector_paths]
    for path in vector_paths:
        for _, ids, X in read_heads_and_pairs(path, _DOCUMENT, fault, 1, n_features, rows_per_block):
            targets = topics_by_document.targets_for(np.array(ids, np.int64))
            yield Block(X, targets, None, ids, width_stated=n_features is not None)


def read_indicator_matrix(
    X: Rows,
    Y: Rows,
    label_names: Sequence[str],
    ids: Sequence[int] | np.ndarray | None = None,
    rows_per_block: int = BLOCK_ROWS,
) -> Iterator[Block]:
    """Yield rows with a matrix of labels in blocks.

    For example, after `bunch = fetch_rcv1()` call
    read_indicator_matrix(bunch.data, bunch.target, bunch.target_names, bunch.sample_id).

    Parameters
    ----------
    X : matrix (n, features)
        Rows.
    Y : matrix (n, labels)
        Entry (i, j) is nonzero if row i has label j.
    label_names : sequence of str
        Names of the labels, one for each column of Y.
    ids : sequence (n,) or None
        Ids of the rows.
    rows_per_block : int
        Number of rows in a block.

    Raises InvalidTargets if X, Y and `label_names` do not have matching lengths.
    """
    X = sp.csr_matrix(X)
    Y = sp.csr_matrix(Y)
    if X.shape[0] != Y.shape[0] or Y.shape[1] != len(label_names):
        raise InvalidTargets(
            f"{X.shape[0]} rows, an indicator of shape {Y.shape} and {len(label_names)} names do not fit together; "
            "pass one indicator row a row and one name a column."
        )

    if X.dtype not in (np.float32, np.float64):
        X = X.astype(np.float64)
    # A CSR matrix may have several entries at one place, which Block does not allow.
    X.sum_duplicates()
    Y.sum_duplicates()

    targets = indicator_targets(Y, tuple(str(name) for name in label_names))
    id_list = None
    if ids is not None:
        id_list = [str(id) for id in ids]
    yield from split_block(Block(X, targets, None, id_list), rows_per_block)
