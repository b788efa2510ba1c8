"""Hashes of rows: as computed value by value, and the same in every form and order of a row."""

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp

from stream_dr import LDA, PCA, hashing, table
from stream_dr.batch.block import Block
from stream_dr.batch.targets import class_targets, continuous_targets, multilabel_targets
from stream_dr.statistics.row_hashes import group_hashes, row_and_target_hashes
from tests.naive import folds as naive


def rows(n: int = 40, d: int = 6) -> np.ndarray:
    random = np.random.default_rng(0)
    X = random.normal(size=(n, d)) * (random.random((n, d)) < 0.6)
    X[0] = 0.0
    X[1, 0] = -0.0
    return X


LABELS = {
    "texts": [("a", "b", "ä")[i % 3] for i in range(40)],
    "numbers": [(1, 2, -3)[i % 3] for i in range(40)],
    "booleans": [i % 2 == 0 for i in range(40)],
    "missing": [None if i % 5 == 0 else "a" for i in range(40)],
}


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
def test_hash_of_labelled_rows(labels):
    X = rows()
    found = row_and_target_hashes(Block(X, class_targets(labels)))
    assert found.tolist() == [naive.row_hash(x.tolist(), y) for x, y in zip(X, labels, strict=True)]


def test_hash_of_rows_with_several_labels_and_of_numbers():
    X = rows()
    sets = [[["a"], ["b", "a"], [], ["c", "b"]][i % 4] for i in range(40)]
    found = row_and_target_hashes(Block(X, multilabel_targets(sets)))
    assert found.tolist() == [naive.row_hash(x.tolist(), y) for x, y in zip(X, sets, strict=True)]

    numbers = np.random.default_rng(1).normal(size=(40, 2)).round(1)
    numbers[3] = 0.0
    found = row_and_target_hashes(Block(X, continuous_targets(numbers)))
    assert found.tolist() == [naive.row_hash(x.tolist(), y) for x, y in zip(X, numbers, strict=True)]


def test_dense_and_sparse_rows_have_one_hash():
    X = rows()
    dense = row_and_target_hashes(Block(X))
    assert (dense == row_and_target_hashes(Block(sp.csr_matrix(X)))).all()
    wider = sp.csr_matrix((X.shape[0], 3))
    assert (dense == row_and_target_hashes(Block(sp.hstack([sp.csr_matrix(X), wider], format="csr")))).all()
    assert (row_and_target_hashes(Block(X.astype(np.float32))) == dense).all()


def test_columns_by_name_may_come_in_any_order():
    X, names = rows(), ("a", "b", "c", "d", "e", "f")
    order = [3, 1, 5, 0, 2, 4]
    first = row_and_target_hashes(Block(X, names=names), hash_column_names=True)
    again = row_and_target_hashes(
        Block(np.ascontiguousarray(X[:, order]), names=tuple(names[i] for i in order)), hash_column_names=True
    )
    assert (first == again).all()
    assert first[3] != row_and_target_hashes(Block(X))[3]


def test_rows_of_a_group_have_one_hash():
    hashes = group_hashes(["x", "y", "x", 3, "3"])
    assert hashes[0] == hashes[2] != hashes[1]
    assert hashes[3] == hashes[4] == naive.mix(naive.text("3"))


def test_folds_are_filled_evenly():
    counts = np.bincount(row_and_target_hashes(Block(np.random.default_rng(2).normal(size=(5_000, 3)))) % np.uint64(5))
    assert counts.min() > 900
    assert counts.max() < 1_100


TABLE = pa.table({"age": [20.0, 30.5, None, 41.0] * 25, "sex": ["f", "m", None, "f"] * 25, "n": list(range(100))})


def count_rows_in_folds(*batches, target="class"):
    model = LDA(folds=3, feature_map=table())
    for batch, y in batches:
        model.partial_fit(batch, y)
    return model.fold_rows_


def test_folds_of_tables_do_not_depend_on_batches_and_order():
    y = ["a", "b"] * 50
    whole = count_rows_in_folds((TABLE, y))
    assert whole.sum() == 100
    assert (whole > 0).all()
    parts = count_rows_in_folds((TABLE.slice(0, 30), y[:30]), (TABLE.slice(30), y[30:]))
    assert (whole == parts).all()
    turned = count_rows_in_folds((TABLE.select(["n", "age", "sex"]), y))
    assert (whole == turned).all()


def test_columns_that_the_map_leaves_out_do_not_count():
    y = ["a", "b"] * 50
    other = TABLE.set_column(2, "n", pa.array(list(range(100, 200))))
    models = [LDA(folds=3, feature_map=table(drop=["n"])).fit(each, y) for each in (TABLE, other)]
    assert (models[0].fold_rows_ == models[1].fold_rows_).all()


def test_folds_of_dicts_follow_names():
    first = [{"a": float(i), "b": 1.0} for i in range(60)]
    second = [{"b": 1.0, "a": float(i), "new": 0.0} for i in range(60)]
    counts = [PCA(folds=4, feature_map=hashing(32)).fit(each).fold_rows_ for each in (first, second)]
    assert (counts[0] == counts[1]).all()
