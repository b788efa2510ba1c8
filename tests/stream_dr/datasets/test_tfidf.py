"""tf-idf with streamed document frequencies, against scikit-learn's and the definition."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfTransformer

from stream_dr.datasets.tfidf import DocumentFrequencies, load_tfidf
from stream_dr.errors import ForeignFile, InvalidRows, NotFitted, SourceMissing
from stream_dr.rows.block import Block


def texts(rows=60, terms=40, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.poisson(0.25, (rows, terms)).astype(float)
    X[:, 7] = 1.0
    return sp.csr_matrix(X)


def counted(*parts):
    frequencies = DocumentFrequencies()
    for part in parts:
        frequencies.add(Block(part))
    return frequencies


def test_equals_scikit_learn():
    X = texts()
    peer = TfidfTransformer(smooth_idf=False, sublinear_tf=True).fit(X)
    peer.idf_ = peer.idf_ - 1.0  # scikit-learn adds one to the logarithm
    expected = peer.transform(X)
    found = counted(X[:13], X[13:]).freeze().apply(Block(X)).X
    np.testing.assert_allclose(found.toarray(), expected.toarray(), atol=1e-14)
    assert np.all(found.toarray()[:, 7] == 0)
    assert found.nnz == expected.tocsr()[:, [j for j in range(40) if j != 7]].nnz


def test_frozen_while_counting_goes_on():
    X = texts()
    frequencies = counted(X[:30])
    frozen = frequencies.freeze()
    before = frozen.frequencies.copy()
    frequencies.add(Block(X[30:]))
    np.testing.assert_array_equal(frozen.frequencies, before)


def test_terms_never_counted_weigh_nothing():
    frozen = counted(sp.csr_matrix(np.array([[1.0, 2.0], [0.0, 1.0], [0.0, 0.0]]))).freeze()
    block = frozen.apply(Block(np.array([[3.0, 0.0, 5.0], [0.0, 0.0, 1.0]]), ids=["a", "b"]))
    np.testing.assert_array_equal(block.X.toarray(), [[1.0, 0.0], [0.0, 0.0]])
    assert block.ids == ["a", "b"]


@pytest.mark.parametrize("value", [-1.0, 0.3])
def test_refuses_what_is_no_count(value):
    with pytest.raises(InvalidRows, match="no count"):
        counted(sp.csr_matrix([[value, 1.0]]))


def test_saved_and_loaded(tmp_path):
    frozen = counted(texts()).freeze()
    frozen.save(tmp_path / "t.safetensors")
    again = load_tfidf(tmp_path / "t.safetensors")
    assert again.rows == 60
    np.testing.assert_array_equal(again.frequencies, frozen.frequencies)
    (tmp_path / "other").write_bytes(b"0123456789")
    with pytest.raises(ForeignFile):
        load_tfidf(tmp_path / "other")
    with pytest.raises(SourceMissing):
        load_tfidf(tmp_path / "none")
    with pytest.raises(NotFitted):
        DocumentFrequencies().freeze()
