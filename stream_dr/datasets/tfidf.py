"""tfidf: raw counts to unit-norm tf-idf rows, with document frequencies that are themselves streamed.

What is remembered: the number of documents and, for each term, in how many it occurred: 8 bytes a term. One pass counts,
`freeze` at any moment gives the weighting of what was counted so far, and counting goes on.

    weight(term in row) = (1 + ln count) · ln(N / df(term)),    then the row divided by its length

A term that occurs in every document weighs nothing; so does one that was never counted, as everywhere a projection meets
a feature it has not learned.

Why this way: frequencies of one pass and a weighting that does not change while a stream is learned are two needs. Weights
that moved under a running model would make its early rows and its late rows different things; so the step is frozen.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from sklearn.preprocessing import normalize

from stream_dr.disk import FileName, write_atomically
from stream_dr.errors import ForeignFile, InvalidRows, NotFitted, SourceMissing
from stream_dr.rows.block import Block, Rows


class DocumentFrequencies:
    """Counts documents and the terms in them. O(entries) a block, O(terms) memory."""

    def __init__(self) -> None:
        self.rows = 0
        self._counts = np.zeros(0, np.int64)

    def add(self, block: Block) -> None:
        """Count the rows of a block of raw counts. Raises InvalidRows for what cannot be counts."""
        X = counts(block.X)
        if X.shape[1] > len(self._counts):
            self._counts = np.concatenate([self._counts, np.zeros(X.shape[1] - len(self._counts), np.int64)])
        self._counts += np.bincount(X.indices, minlength=len(self._counts))
        self.rows += X.shape[0]

    def freeze(self) -> "TfIdf":
        """The weighting of what was counted so far; later counts do not change it. Raises NotFitted before any row."""
        if self.rows == 0:
            raise NotFitted("no document was counted so far; add blocks of raw counts first.")
        return TfIdf(self.rows, self._counts.copy())


class TfIdf(NamedTuple):
    """A frozen weighting. rows: documents counted. frequencies: (terms,) int64 in how many documents each occurred."""

    rows: int
    frequencies: np.ndarray

    @property
    def weights(self) -> np.ndarray:
        """(terms,) float64 ln(N / df), 0 for terms never counted."""
        return np.where(self.frequencies > 0, np.log(self.rows / np.maximum(self.frequencies, 1)), 0.0)

    def apply(self, block: Block) -> Block:
        """The block with its rows weighted, as CSR (rows, terms) without the entries that weigh nothing.

        Raises InvalidRows.
        """
        X, terms = counts(block.X), len(self.frequencies)
        if X.shape[1] > terms:
            X = X[:, :terms]
        values = (1.0 + np.log(X.data)) * self.weights[X.indices]
        out = sp.csr_matrix((values, X.indices.copy(), X.indptr.copy()), shape=(X.shape[0], terms))
        out.eliminate_zeros()
        return block._replace(X=normalize(out, copy=False), names=None, width_stated=True, checked=False)

    def save(self, path: FileName) -> None:
        """Write to one file, whole or not at all."""
        body = save({"frequencies": self.frequencies}, metadata={"stream_dr": "tfidf", "rows": str(self.rows)})
        write_atomically(Path(path), lambda handle: handle.write(body), point="tfidf")


def load_tfidf(path: FileName) -> TfIdf:
    """The weighting in a file written by `TfIdf.save`. Raises SourceMissing or ForeignFile."""
    if not Path(path).is_file():
        raise SourceMissing(f"there is no file {path}; give one that `convert --tfidf` has written.")
    try:
        with safe_open(path, "numpy") as file:
            told = file.metadata() or {}
            if told.get("stream_dr") != "tfidf":
                raise ValueError("no tf-idf in it")
            return TfIdf(int(told["rows"]), file.get_tensor("frequencies"))
    except (KeyError, ValueError, SafetensorError) as e:
        raise ForeignFile(f"{path} was not written by stream_dr's tf-idf step ({e}).", path=str(path)) from e


def counts(X: Rows) -> sp.csr_matrix:
    """Rows of counts as CSR without explicit zeros. Raises InvalidRows naming a value that is no count."""
    X = sp.csr_matrix(X)
    if len(X.data) and X.data.min() < 1:
        if np.any(X.data == 0):
            X = X.copy()
            X.eliminate_zeros()
        odd = X.data[X.data < 1]
        if len(odd):
            raise InvalidRows(f"{odd[0]:g} is no count; tf-idf needs raw counts (0, 1, 2 …), not weights.")
    return X
