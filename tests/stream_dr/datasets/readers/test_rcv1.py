"""RCV1's two public forms, on small files made in exactly those forms."""

import numpy as np
import pytest
import scipy.sparse as sp

from stream_dr.datasets.readers.rcv1 import read_indicator_matrix, read_lyrl2004
from stream_dr.errors import InvalidTargets, MalformedInput

VECTORS = (
    "2286  864:0.0497399253756197 1523:0.044664135988103 1681:0.0673871572152868\n2287  900:0.5 47236:0.25\n2290  1:1\n"
)
TOPICS = "E11 2286 1\nECAT 2286 1\nM11 2286 1\nMCAT 2286 1\nC24 2287 1\nCCAT 2287 1\nE11 9999 1\n"


def files(tmp_path, vectors=VECTORS, topics=TOPICS):
    (tmp_path / "lyrl2004_vectors_train.dat").write_text(vectors)
    (tmp_path / "rcv1-v2.topics.qrels").write_text(topics)
    return tmp_path / "lyrl2004_vectors_train.dat", tmp_path / "rcv1-v2.topics.qrels"


def test_vector_files_joined_with_their_topics(tmp_path):
    (block,) = read_lyrl2004(*files(tmp_path))
    assert block.X.shape == (3, 47_236)
    assert block.X.indices.tolist() == [863, 1522, 1680, 899, 47_235, 0]
    assert block.X.data[0] == 0.0497399253756197
    assert block.ids == ["2286", "2287", "2290"]
    assert block.y.kind == "multilabel"
    assert [sorted(s) if s else s for s in block.y.targets_by_row()] == [
        ["E11", "ECAT", "M11", "MCAT"],
        ["C24", "CCAT"],
        None,
    ]


def test_several_files_and_topics_in_another_order(tmp_path):
    vectors, topics = files(tmp_path, topics="".join(reversed(TOPICS.splitlines(keepends=True))))
    blocks = list(read_lyrl2004([vectors, vectors], topics, rows_per_block=2))
    assert [b.rows for b in blocks] == [2, 1, 2, 1]
    assert sorted(blocks[2].y.targets_by_row()[0]) == ["E11", "ECAT", "M11", "MCAT"]


@pytest.mark.parametrize(
    ("vectors", "topics", "said"),
    [
        ("2286 1:1\nx 2:1\n", TOPICS, "train.dat, line 2: 'x 2:1' begins with no document number"),
        ("2286 1:1\n2287 47237:1\n", TOPICS, "train.dat, line 2: column 47236"),
        ("2286 1:1\n2287 2\n", TOPICS, "train.dat, line 2"),
        (VECTORS, "E11 2286 1\nE11 2287\n", "qrels, line 2"),
        (VECTORS, "\n", "holds no topics"),
    ],
)
def test_bad_lines_are_named(tmp_path, vectors, topics, said):
    with pytest.raises(MalformedInput, match=said):
        list(read_lyrl2004(*files(tmp_path, vectors, topics)))


def test_what_fetch_rcv1_returns():
    X = sp.random(25, 300, density=0.1, random_state=0, format="csr", dtype=np.float64)
    Y = sp.csr_matrix((np.random.default_rng(0).random((25, 103)) < 0.03).astype(np.uint8))
    names = np.array([f"T{j}" for j in range(103)], dtype=object)
    ids = np.arange(2286, 2311)
    blocks = list(read_indicator_matrix(X, Y, names, ids, rows_per_block=10))
    assert [b.rows for b in blocks] == [10, 10, 5]
    assert (sp.vstack([b.X for b in blocks]) != X).nnz == 0
    found = [labels for b in blocks for labels in b.y.targets_by_row()]
    assert found == [[f"T{j}" for j in np.flatnonzero(row)] for row in Y.toarray()]
    assert blocks[2].ids == [str(n) for n in range(2306, 2311)]
    with pytest.raises(InvalidTargets, match="do not fit"):
        list(read_indicator_matrix(X, Y[:5], names))
