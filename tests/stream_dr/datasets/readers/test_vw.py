"""Vowpal Wabbit lines: labels, weights, tags, namespaces; and the real fragment of RCV1."""

import os
from pathlib import Path

import numpy as np
import pytest

from stream_dr.datasets.readers.libsvm import read_vw
from stream_dr.errors import MalformedInput


def blocks(tmp_path, text, **how):
    path = tmp_path / "rows.vw"
    path.write_text(text)
    return list(read_vw(path, **how))


def test_labels_and_indices_as_they_stand(tmp_path):
    (block,) = blocks(tmp_path, "-1 |f 9:6.25e-02 14:1\n1 |f 0:2\n1 |f\n")
    assert block.y.targets_by_row() == [-1, 1, 1]
    assert block.X.shape == (3, 15)
    np.testing.assert_array_equal(block.X.toarray()[:, [0, 9, 14]], [[0, 0.0625, 1], [2, 0, 0], [0, 0, 0]])
    assert block.weights is None
    (from_one,) = blocks(tmp_path, "1 | 3:1\n", one_based=True)
    assert from_one.X.indices.tolist() == [2]


def test_weights_and_tags(tmp_path):
    (block,) = blocks(tmp_path, "1 0.5 'a |f 1:1\n-1 'b |f 2:1\n1 2 c|f 2:1\n")
    assert block.weights.tolist() == [0.5, 1.0, 2.0]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("1 3:1", r"'1 3:1' has no '\|'"),
        ("1 |a 3:1 |b 4:1", "several namespaces"),
        ("1 |f height:2", "'height:2' is not index:value"),
        ("1 |f 3:1 3:2", "stands twice"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, said):
    with pytest.raises(MalformedInput, match=said) as caught:
        blocks(tmp_path, f"1 |f 1:1\n{line}\n")
    assert caught.value.details["line"] == 2


@pytest.mark.skipif("STREAM_DR_DATA" not in os.environ, reason="STREAM_DR_DATA is not set")
def test_the_rcv1_fragment():
    path = Path(os.environ["STREAM_DR_DATA"]) / "rcv1_fragment" / "rcv1_small.dat"
    (block,) = read_vw(path, n_features=47_236)
    assert block.X.shape == (1_000, 47_236)
    assert block.X.nnz == 77_739
    assert set(block.y.labels) == {-1, 1}
    lengths = np.sqrt(block.X.multiply(block.X).sum(1))
    np.testing.assert_allclose(lengths, 1.0, atol=1e-6)
