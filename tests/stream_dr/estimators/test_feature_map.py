"""feature_map=: every registered estimator that has the parameter, behind every map."""

import inspect
import json
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

import stream_dr
from stream_dr import (
    CCIPCA,
    ESTIMATORS,
    LPP,
    PCA,
    InformationGain,
    hashing,
    nystroem,
    polynomial,
    random_fourier,
)
from stream_dr.batch.block import Block
from stream_dr.errors import CannotMerge, EmptyInput, InvalidParameter, PrecisionLost, WidthMismatch
from stream_dr.estimators import make
from stream_dr.feature_maps import feature_map
from stream_dr.statistics.protocol import pack, unpack

KEYS = [key for key in ESTIMATORS if "feature_map" in inspect.signature(ESTIMATORS[key]).parameters]
rng = np.random.default_rng(21)
X = np.round(rng.normal(size=(60, 5)) * (rng.random((60, 5)) < 0.8), 2)
MAPS = {
    "rbf": random_fourier(20, gamma=0.1),
    "laplace": random_fourier(20, kernel="laplace", gamma=0.1),
    "orthogonal": random_fourier(20, gamma=0.1, orthogonal=True),
    "landmarks": nystroem(X[:9], gamma=0.1),
    "polynomial": polynomial(2, gamma=0.1),
    "hashing": hashing(16),
}
Y = np.arange(60) % 3

FORMS = ("rbf", "orthogonal", "landmarks", "hashing")
"""One of each kind of map, for every estimator; the others differ from "rbf" in what apply gives alone."""


def targets(key):
    kinds = ESTIMATORS[key].target_kinds
    return None if not kinds else Y if "class" in kinds else [[int(v)] for v in Y]


def mapped(spec, rows=X):
    made = feature_map(spec)
    return (
        made.coordinates(made.initial_landmarks(), rows)
        if spec["map"] == "nystroem"
        else made.apply(rows, rows.shape[1])
    )


def part(y, chosen):
    return None if y is None else y[chosen]


def close(a, b, tolerance=1e-8):
    assert a.shape == b.shape
    assert a == pytest.approx(b, rel=tolerance, abs=tolerance * max(1.0, np.abs(b).max(initial=0.0)))


def test_every_estimator_takes_a_map():
    assert set(KEYS) == set(ESTIMATORS)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("key", KEYS)
def test_a_map_inside_equals_the_map_outside(key, name):
    spec, y = MAPS[name], targets(key)
    inside = ESTIMATORS[key](feature_map=spec).fit(X, y)
    outside = ESTIMATORS[key]().fit(mapped(spec), y)
    close(inside.transform(X), outside.transform(mapped(spec)))
    assert inside.n_features_in_ == 5
    assert inside.rank_ == outside.rank_
    assert inside.solve(inside.state_).kind == "mapped"


@pytest.mark.parametrize("key", KEYS)
def test_batching_saving_and_unpacking(key, tmp_path):
    spec, y = MAPS["rbf"], targets(key)
    whole = ESTIMATORS[key](feature_map=spec).fit(X, y)
    parts = ESTIMATORS[key](feature_map=spec).partial_fit(X[:25], part(y, slice(0, 25)))
    parts.save(tmp_path / "saved")
    again = stream_dr.load(tmp_path / "saved").partial_fit(X[25:], part(y, slice(25, 60)))
    close(np.abs(again.transform(X)), np.abs(whole.transform(X)))  # signs are those of the solution shown before
    state = unpack(again.state_type, *pack(again.state_))
    assert np.array_equal(np.abs(again.solve(state).apply(X)), np.abs(again.transform(X)))


def inner_products(model):
    """(rows, rows), whatever signs and order components have: those of the solution shown before."""
    Z = model.transform(X)
    return Z @ Z.T


@pytest.mark.parametrize("key", [key for key in KEYS if ESTIMATORS[key].additive])
@pytest.mark.parametrize("name", FORMS)
def test_merges_and_unlearns_where_the_estimator_does(key, name):
    spec, y = MAPS[name], targets(key)
    whole = ESTIMATORS[key](feature_map=spec).fit(X, y)
    merged = ESTIMATORS[key](feature_map=spec).fit(X[:25], part(y, slice(0, 25)))
    merged.merge(ESTIMATORS[key](feature_map=spec).fit(X[25:], part(y, slice(25, 60))))
    close(inner_products(merged), inner_products(whole), 1e-6)
    merged.unlearn(X[25:], part(y, slice(25, 60)))
    first = ESTIMATORS[key](feature_map=spec).fit(X[:25], part(y, slice(0, 25)))
    close(inner_products(merged), inner_products(first), 1e-6)
    with pytest.raises(CannotMerge):
        merged.merge(ESTIMATORS[key](feature_map=MAPS["laplace" if name == "rbf" else "rbf"]).fit(X, y))


@pytest.mark.parametrize("name", MAPS)
def test_a_state_whose_map_lacks_a_parameter_is_refused(name):
    model = PCA(2, feature_map=MAPS[name]).fit(X)
    spec = json.loads(model.state_.feature_map)
    spec.pop("alternate_sign" if name == "hashing" else "seed")
    with pytest.raises(CannotMerge, match="another feature map"):
        model.accumulator(model.state_._replace(feature_map=json.dumps(spec)))


@pytest.mark.parametrize("name", MAPS)
def test_sparse_rows_are_dense_rows(name):
    dense = stream_dr.LDA(gamma=0.1, feature_map=MAPS[name]).fit(X, Y)
    sparse = stream_dr.LDA(gamma=0.1, feature_map=MAPS[name]).fit(sp.csr_matrix(X), Y)
    close(sparse.transform(sp.csr_matrix(X)), dense.transform(X))
    wide = sp.csr_matrix(np.pad(X, ((0, 0), (0, 2)), constant_values=7.0))
    close(sparse.transform(stream_dr.Block(wide, width_stated=False)), dense.transform(X))


@pytest.mark.parametrize("name", ["rbf", "laplace"])
def test_sparse_streams_may_grow_features(name):
    model = stream_dr.LDA(gamma=0.1, feature_map=MAPS[name])
    model.partial_fit(sp.csr_matrix(X[:30, :3]), Y[:30]).partial_fit(sp.csr_matrix(X[30:]), Y[30:])
    padded = np.vstack([np.pad(X[:30, :3], ((0, 0), (0, 2))), X[30:]])
    close(
        model.transform(sp.csr_matrix(X)), stream_dr.LDA(gamma=0.1, feature_map=MAPS[name]).fit(padded, Y).transform(X)
    )
    assert model.n_features_in_ == 5


def test_the_orthogonal_variant_needs_the_width_and_keeps_it():
    model = stream_dr.PCA(feature_map=MAPS["orthogonal"])
    with pytest.raises(WidthMismatch, match="state it"):
        model.partial_fit(Block(sp.csr_matrix(X), width_stated=False))
    model.partial_fit(sp.csr_matrix(X))
    before = model.transform(X)
    with pytest.raises(WidthMismatch):
        model.partial_fit(sp.csr_matrix(np.hstack([X, X])))
    assert np.array_equal(model.transform(X), before)


def test_a_refused_batch_changes_nothing():
    model = stream_dr.LDA(feature_map=MAPS["rbf"], min_class_rows=1).fit(X, Y)
    before = pack(model.state_)[1], model.transform(X)
    for rows in (X[:, :3], np.full((1, 5), np.nan)):
        with pytest.raises(ValueError, match=r"features|NaN"):
            model.partial_fit(rows, Y[: len(rows)])
    assert pack(model.state_)[1] == before[0]
    assert np.array_equal(model.transform(X), before[1])


DICTS = [
    {"price": 1.0, "colour": "red"},
    {"price": 3.0, "colour": "blue", "new": True},
    {"colour": "red"},
    {"price": 2},
]


def test_rows_may_be_dicts_where_the_map_goes_by_name():
    labels = ["a", "b", "a", "b"]
    model = stream_dr.ClassMeans(feature_map=hashing(64)).partial_fit(DICTS[:2], labels[:2])
    model.partial_fit(DICTS[2:], labels[2:])
    whole = stream_dr.ClassMeans(feature_map=hashing(64)).fit(DICTS, labels)
    close(model.transform(DICTS), whole.transform(DICTS))
    assert model.predict(DICTS).tolist() == labels
    assert model.transform([{"never met": 4.0}]).shape == (1, 1)
    with pytest.raises(ValueError, match="no numbers"):
        stream_dr.ClassMeans().fit(DICTS, labels)


def test_tables_may_have_other_columns_in_every_batch():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcde"))
    model = stream_dr.LDA(gamma=0.1, feature_map=hashing(64)).fit(frame, Y)
    close(model.transform(frame[["e", "d", "c", "b", "a"]]), model.transform(frame))
    close(model.transform(X), model.transform(frame))  # the names all batches had
    model.partial_fit(frame[["a", "b"]].rename(columns={"a": "f"}), Y)
    assert model.n_samples_seen_ == 120


def test_specs_are_json_and_equal_whatever_way_they_came():
    spec = random_fourier(40, gamma=0.5, seed=3)
    model = make("lda", {"feature_map": json.loads(json.dumps(spec))})
    assert model.get_params() == stream_dr.LDA(feature_map=spec).get_params()
    assert clone(model).feature_map == spec
    assert make("lda", {"feature_map": {"map": "random_fourier"}}).feature_map == {"map": "random_fourier"}


@pytest.mark.parametrize(
    "wrong",
    ["rbf", {}, {"map": "cubes"}, {"map": "hashing", "width": 3}, {"map": "hashing", "n_features": 0}, 5],
    ids=str,
)
def test_wrong_specs_are_refused_when_the_estimator_is_made(wrong):
    with pytest.raises(InvalidParameter):
        make("lda", {"feature_map": wrong})


def test_memory_counts_the_mapped_width_and_the_map():
    plain, fourier = stream_dr.LDA(), stream_dr.LDA(feature_map=random_fourier(500))
    assert fourier.state_bytes(100, 3) == plain.state_bytes(500, 3) + 4 * 500 * 128
    assert stream_dr.LDA(feature_map=hashing(100)).state_bytes(10**6, 3) < plain.state_bytes(10**6, 3)


@pytest.mark.parametrize(
    "estimator",
    [
        stream_dr.LDA(feature_map=MAPS["rbf"], min_class_rows=1),
        stream_dr.PCA(feature_map=MAPS["orthogonal"]),
        stream_dr.ClassMeans(feature_map=MAPS["hashing"], min_class_rows=1),
        stream_dr.CCIPCA(feature_map=MAPS["laplace"]),
        stream_dr.CCIPCA(feature_map=nystroem(20, gamma=0.1)),
        stream_dr.LPP(label_aware=True),
    ],
    ids=str,
)
def test_scikit_learns_checks(estimator):
    check_estimator(estimator, on_skip=None)


@pytest.mark.test_all
def test_many_rows_of_a_wide_map_take_little_memory():
    X = np.random.default_rng(3).normal(size=(40_000, 1))
    pca = stream_dr.PCA(n_components=2, scatter="diagonal", feature_map=random_fourier(1_000))
    tracemalloc.start()
    try:
        pca.partial_fit(X)
        assert tracemalloc.get_traced_memory()[1] < 200e6  # mapped, all rows take 320e6
    finally:
        tracemalloc.stop()
    assert pca.n_samples_seen_ == 40_000


def test_a_batch_that_is_refused_in_a_later_part_changes_nothing():
    # A part of the second batch has 4,194 rows, and the heavy rows come after it.
    rows = np.random.default_rng(4).normal(size=(5_000, 3))
    weights = np.repeat([1.0, 1e14], [4_500, 500])
    pca = stream_dr.PCA(scatter="diagonal", feature_map=random_fourier(1_000))
    pca.partial_fit(rows[:40], sample_weight=weights[:40]).partial_fit(rows[40:], sample_weight=weights[40:])
    before, _ = pack(pca.state_)
    with pytest.raises(PrecisionLost):
        pca.unlearn(rows[40:], sample_weight=weights[40:])
    after, _ = pack(pca.state_)
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert pca.n_samples_seen_ == 5_000
    assert pca.unlearn(rows[:40], sample_weight=weights[:40]).n_samples_seen_ == 4_960


@pytest.mark.parametrize("kind", [PCA, CCIPCA, InformationGain, LPP])
@pytest.mark.filterwarnings("ignore::stream_dr.errors.NarrowKernel")
def test_a_map_whose_spec_was_changed_after_fit_is_refused_until_the_next_fit(kind):
    spec = random_fourier(20, gamma=0.5)
    random = np.random.default_rng(0)
    rows, labels = random.normal(size=(40, 3)), np.array(["a", "b"])[np.arange(40) % 2]
    estimator = kind(feature_map=spec).fit(rows, labels)
    before = estimator.transform(rows)
    spec["gamma"] = 3.0
    with pytest.raises(InvalidParameter, match="gamma"):
        estimator.partial_fit(rows, labels)
    assert np.array_equal(estimator.transform(rows), before)
    assert not np.array_equal(estimator.fit(rows, labels).transform(rows), before)


@pytest.mark.parametrize(
    ("spec", "shown"),
    [
        (None, "LDA()"),
        (stream_dr.table(), "LDA(feature_map={'map': 'table'})"),
        (stream_dr.table(n_words=7, drop=["id"]), "LDA(feature_map={'drop': ['id'], 'map': 'table', 'n_words': 7})"),
        (stream_dr.text(ngram_range=(1, 2)), "LDA(feature_map={'map': 'text', 'ngram_range': [1, 2]})"),
        (stream_dr.nystroem([[1.0, 2.0]]), "LDA(feature_map={'landmarks': [[1.0, 2.0]], 'map': 'nystroem'})"),
        ({"map": "table", "no": 3}, "LDA(feature_map={'map': 'table', 'no': 3})"),
        ({"map": "none such"}, "LDA(feature_map={'map': 'none such'})"),
        (3, "LDA(feature_map=3)"),
    ],
)
def test_an_estimator_prints_of_its_map_what_is_not_by_default(spec, shown):
    lda = stream_dr.LDA(feature_map=spec)
    assert repr(lda) == shown
    assert lda.feature_map is spec
    assert repr(lda.set_params(gamma=2.0)) == shown.replace(")", ", gamma=2.0)").replace("(, ", "(")


@pytest.mark.parametrize("spec", [random_fourier(6), nystroem(5), polynomial(2)])
@pytest.mark.parametrize("rows", [np.zeros((3, 0)), sp.csr_matrix((3, 0))])
def test_rows_without_features_cannot_be_mapped(spec, rows):
    with pytest.raises(EmptyInput):
        stream_dr.PCA(2, feature_map=spec).partial_fit(rows)
