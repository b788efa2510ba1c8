"""Hashed, weighted counts of words or n-grams, by scikit-learn's HashingVectorizer.

Weights are equal to the weights of scikit-learn's TfidfVectorizer. The inverse document frequency
of a hashed column is ln((1 + n) / (1 + df)) + 1. Here n is the number of documents so far, and df
is the number of documents that have a word in this column. Each distinct text of a batch is hashed
one time.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy.sparse as sp

from stream_dr.errors import InvalidParameter

if TYPE_CHECKING:
    from sklearn.feature_extraction.text import HashingVectorizer


class Words(NamedTuple):
    """Settings for the encoding of texts as weighted words.

    `sublinear_tf` and `idf` are the parameters `sublinear_tf` and `use_idf` of scikit-learn's
    TfidfVectorizer. The other fields are parameters of scikit-learn's HashingVectorizer. If
    n_features is 0, the text columns of a table share 1,024 hashed columns equally.
    """

    n_features: int = 0
    ngram_range: tuple[int, int] = (1, 1)
    analyzer: str = "word"
    lowercase: bool = True
    stop_words: str | None = None
    alternate_sign: bool = False
    sublinear_tf: bool = False
    norm: str | None = "l2"
    idf: bool = False

    def check(self) -> None:
        """Raise InvalidParameter if a parameter is outside its range."""
        n, grams = self.n_features, self.ngram_range
        if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n < 2**31:
            raise InvalidParameter(f"n_features={n!r} of words; it must be an integer ≥ 1 and below 2³¹.")
        if len(grams) != 2 or not all(isinstance(g, int) for g in grams) or not 1 <= grams[0] <= grams[1]:
            raise InvalidParameter(f"ngram_range={grams!r}; it must be two integers, 1 ≤ least ≤ most.")
        for name, allowed in (("analyzer", ("word", "char", "char_wb")), ("norm", ("l1", "l2", None))):
            if getattr(self, name) not in allowed:
                raise InvalidParameter(f"{name}={getattr(self, name)!r}; it must be one of {allowed}.")
        if self.stop_words not in (None, "english"):
            raise InvalidParameter(f"stop_words={self.stop_words!r}; it must be None or 'english'.")


def count_hashed_words(settings: Words, texts: tuple[str, ...]) -> sp.csr_matrix:
    """Count each text's words by the hash of the word.

    The result is CSR (texts, settings.n_features) float64. The hash of a word is its column.
    """
    if not texts:
        return sp.csr_matrix((0, settings.n_features))
    return _cached_vectorizer(settings._replace(norm=None, idf=False, sublinear_tf=False)).transform(texts)


def weight_word_counts(
    settings: Words, counts: sp.csr_matrix, document_frequencies: np.ndarray, n_documents: int
) -> sp.csr_matrix:
    """Return weighted counts of hashed words.

    The result is CSR and has the shape of `counts`. The settings decide whether counts are
    multiplied by the inverse document frequency, and whether rows are scaled to length 1.

    counts: (texts, columns), counts of hashed words.
    document_frequencies: (columns,), number of documents so far that have a word in each
        column.
    n_documents: number of documents so far.
    """
    from sklearn.preprocessing import normalize

    rows = counts.copy()
    if settings.sublinear_tf:
        rows.data = np.sign(rows.data) * (np.log(np.abs(rows.data)) + 1.0)
    if settings.idf:
        rows.data *= (np.log((1.0 + n_documents) / (1.0 + document_frequencies)) + 1.0)[rows.indices]
    return normalize(rows, norm=settings.norm, copy=False) if settings.norm and rows.shape[0] else rows


@lru_cache(maxsize=16)
def _cached_vectorizer(settings: Words) -> "HashingVectorizer":
    from sklearn.feature_extraction.text import HashingVectorizer

    parameters = {name: value for name, value in settings._asdict().items() if name not in ("idf", "sublinear_tf")}
    return HashingVectorizer(**parameters)
