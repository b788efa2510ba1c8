"""Generated rows have RCV1's statistics, are the same from one seed however they are cut, and can be learned from."""

import hashlib

import numpy as np
import pytest
import scipy.sparse as sp

from stream_dr.datasets.generate import (
    TOP_SHARES,
    TOPICS,
    WIDTH,
    build_vocabulary,
    generate_rcv1_like,
    write_rcv1_like_shards,
)
from stream_dr.errors import InvalidParameter
from stream_dr.shards.dataset import open_dataset

ROWS = 12_000


@pytest.fixture(scope="module")
def blocks():
    return list(generate_rcv1_like(ROWS, "topics", seed=3))


def together(blocks):
    return sp.vstack([b.X for b in blocks]).tocsr(), [r for b in blocks for r in b.y.targets_by_row()]


def test_rows_are_unit_length_and_have_76_nonzeros_on_average(blocks):
    X, _ = together(blocks)
    assert X.shape == (ROWS, WIDTH)
    assert abs(X.nnz / ROWS - 76) < 1.5
    assert np.allclose(np.sqrt(X.multiply(X).sum(axis=1)), 1.0, atol=1e-12)
    assert np.diff(X.indptr).min() > 0
    assert all(b.X.has_canonical_format and b.X.data.min() > 0 for b in blocks)


def test_document_frequencies_fall_as_zipf_says(blocks):
    X, _ = together(blocks)
    frequency = np.sort(np.bincount(X.indices, minlength=WIDTH))[::-1]
    ranks = np.array([50, 200, 800, 3200])
    slopes = np.diff(np.log(frequency[ranks])) / np.diff(np.log(ranks))
    assert np.all((slopes < -0.75) & (slopes > -1.25))
    assert np.count_nonzero(frequency) > 0.9 * WIDTH


def test_topics_have_their_shares_and_their_ancestors(blocks):
    _, labels = together(blocks)
    for top, share in TOP_SHARES.items():
        assert sum(top in row for row in labels) / ROWS == pytest.approx(share, abs=0.015)
    assert 3.1 < np.mean([len(row) for row in labels]) < 3.4
    assert {topic for row in labels for topic in row} == set(TOPICS)
    assert len(set(TOPICS)) == 103
    above = build_vocabulary().ancestors
    names = {topic: {TOPICS[j] for j in above[i] if j >= 0} for i, topic in enumerate(TOPICS)}
    assert names["C1511"] == {"C1511", "C151", "C15", "CCAT"}
    assert names["GPOL"] == {"GPOL", "GCAT"}
    for row in labels[:2000]:
        assert set(row) == set().union(*(names[topic] for topic in row))


def test_top4_has_one_top_topic_a_row_and_the_same_words(blocks):
    X, labels = together(blocks[:3])
    Z, tops = together(list(generate_rcv1_like(3000, "top4", seed=3)))
    assert (X != Z).nnz == 0
    assert all(top in row for top, row in zip(tops, labels, strict=True))
    assert set(tops) == set(TOP_SHARES)


def test_labels_of_a_block_are_in_order_of_first_appearance(blocks):
    for block in blocks[:3]:
        met = dict.fromkeys(TOPICS[TOPICS.index(label)] for row in block.y.targets_by_row() for label in row)
        assert set(met) == set(block.y.labels)
        assert all(
            np.all(np.diff(block.y.codes[a:b]) > 0) for a, b in zip(block.y.indptr, block.y.indptr[1:], strict=False)
        )


def test_the_number_of_rows_and_where_they_start_change_no_row(blocks):
    whole, labels = together(blocks)
    short, first = together(list(generate_rcv1_like(2345, seed=3)))
    assert (short != whole[:2345]).nnz == 0
    assert first == labels[:2345]
    late, last = together(list(generate_rcv1_like(1500, seed=3, start=7000)))
    assert (late != whole[7000:8500]).nnz == 0
    assert last == labels[7000:8500]


def test_other_seeds_give_other_rows_of_the_same_language(blocks):
    other = next(generate_rcv1_like(1000, seed=4))
    assert (other.X != blocks[0].X).nnz > 0
    assert np.argmax(np.bincount(other.X.indices)) in np.argsort(np.bincount(blocks[0].X.indices))[-10:]


def test_shard_size_changes_no_row(tmp_path):
    for size in (1000, 2000):
        write_rcv1_like_shards(tmp_path / str(size), 3500, seed=1, rows_per_shard=size)
    one, two = (open_dataset(tmp_path / str(size)) for size in (1000, 2000))
    assert (len(one.shards), len(two.shards)) == (4, 2)
    assert one.n_features == WIDTH
    X, labels = together([b for _, b in one.events()])
    Z, again = together([b for _, b in two.events()])
    assert (X != Z).nnz == 0
    assert labels == again


def test_rows_are_what_they_were(blocks):
    """The stream of a seed is part of what benchmarks report: a change of it must be meant, another processor is none."""
    digest = hashlib.sha256(blocks[0].X.indices.tobytes() + repr(blocks[0].y.targets_by_row()).encode()).hexdigest()
    assert digest[:16] == "a56c0774bf922e1b"


def test_words_say_something_about_the_top_topic():
    X, y = together(list(generate_rcv1_like(6000, "top4", seed=9)))
    names = list(TOP_SHARES)
    y = np.array([names.index(label) for label in y])
    means = np.stack([np.asarray(X[:5000][y[:5000] == j].mean(axis=0))[0] for j in range(4)])
    guessed = np.argmax(X[5000:] @ means.T - 0.5 * (means**2).sum(axis=1), axis=1)
    assert 0.8 < np.mean(guessed == y[5000:]) < 0.95


@pytest.mark.parametrize("wrong", [{"targets": "top5"}, {"rows": -1}, {"seed": -1}, {"start": 10}])
def test_wrong_parameters_are_named(wrong):
    with pytest.raises(InvalidParameter, match=next(iter(wrong))):
        list(generate_rcv1_like(**{"rows": 10, **wrong}))
