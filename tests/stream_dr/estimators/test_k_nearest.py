"""KNearest against scikit-learn's k-NN, on the whole stream and on a sample of it."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier
from sklearn.utils.estimator_checks import check_estimator

import stream_dr
from stream_dr import LDA, ClassMeans, KNearest
from stream_dr.errors import (
    CannotMerge,
    InvalidParameter,
    InvalidTargets,
    NotFitted,
    SchemaMismatch,
    TargetKindMismatch,
    WidthMismatch,
)

X, Y = load_digits(return_X_y=True)
TRAIN, TEST = slice(0, 1200), slice(1200, 1797)


def test_scikit_learns_checks():
    check_estimator(KNearest(), on_skip=None)


@pytest.mark.parametrize("k", [1, 5])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
def test_equals_scikit_learn_while_the_sample_holds_every_row(k, form):
    model = KNearest(n_neighbors=k)
    for start in range(0, 1200, 170):
        part = slice(start, min(start + 170, 1200))
        model.partial_fit(form(X[part]), Y[part])
    peer = KNeighborsClassifier(k, algorithm="brute").fit(form(X[TRAIN]), Y[TRAIN])
    assert (model.predict(form(X[TEST])) == peer.predict(form(X[TEST]))).mean() > 0.998  # ties of distance


def test_a_sample_is_nearly_as_good():
    sampled = KNearest(reservoir=400).fit(X[TRAIN], Y[TRAIN]).score(X[TEST], Y[TEST])
    assert sampled > KNearest().fit(X[TRAIN], Y[TRAIN]).score(X[TEST], Y[TEST]) - 0.05


def test_behind_a_projection():
    lda = LDA().fit(X[TRAIN], Y[TRAIN])
    near = KNearest().fit(lda.transform(X[TRAIN]), Y[TRAIN])
    assert near.score(lda.transform(X[TEST]), Y[TEST]) > 0.88


def test_the_nearest_class_mean_is_the_definitions():
    means = np.array([X[TRAIN][Y[TRAIN] == c].mean(axis=0) for c in range(10)])
    expected = ((X[TEST][:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    streamed = ClassMeans()
    for start in range(0, 1200, 100):
        streamed.partial_fit(X[start : start + 100], Y[start : start + 100])
    assert np.array_equal(streamed.predict(X[TEST]), expected)


def test_merge_and_string_labels():
    names = np.array(["even", "odd"])[Y % 2]
    a = KNearest(reservoir=300).fit(X[:600], names[:600])
    a.merge(KNearest(reservoir=300).fit(X[600:1200], names[600:1200]))
    assert a.n_samples_seen_ == 1200
    assert a.classes_.tolist() == ["even", "odd"]
    assert a.score(X[TEST], names[TEST]) > 0.85
    with pytest.raises(CannotMerge):
        a.merge(KNearest().fit(X[TRAIN], names[TRAIN]))


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
def test_shares_and_neighbours_are_scikit_learns(form):
    rows, y = X[:300] + np.random.default_rng(0).normal(size=(300, 64)), np.array(["no", "yes", "maybe"])[Y[:300] % 3]
    model, peer = (
        KNearest(n_neighbors=5).fit(form(rows), y),
        KNeighborsClassifier(5, algorithm="brute").fit(form(rows), y),
    )
    asked = form(X[300:400])
    assert model.classes_.tolist() == peer.classes_.tolist()
    np.testing.assert_array_equal(model.predict_proba(asked), peer.predict_proba(asked))
    np.testing.assert_array_equal(model.predict(asked), peer.predict(asked))
    for given in ((asked,), (asked, 2), (None, 3)):
        for mine, theirs in zip(model.kneighbors(*given), peer.kneighbors(*given), strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-6)
    model.set_params(n_neighbors=1)
    assert np.array_equal(model.predict(asked), KNeighborsClassifier(1).fit(rows, y).predict(X[300:400]))


def test_saved_it_goes_on_bit_equal(tmp_path):
    model = KNearest(n_neighbors=3, reservoir=200).fit(X[:600], Y[:600])
    model.save(tmp_path / "saved")
    back = stream_dr.load(tmp_path / "saved")
    for each in (model, back):
        each.partial_fit(X[600:1200], Y[600:1200])
    assert np.array_equal(back.state_.numbers, model.state_.numbers)
    assert np.array_equal(back.predict_proba(X[TEST]), model.predict_proba(X[TEST]))
    KNearest(n_neighbors=3).save(tmp_path / "unfitted")
    assert stream_dr.load(tmp_path / "unfitted").get_params() == KNearest(n_neighbors=3).get_params()
    back.set_params(reservoir=100)
    with pytest.raises(InvalidParameter, match="was made with reservoir=200"):
        back.predict(X)


def test_what_is_refused_leaves_it_as_it_was():
    model = KNearest()
    with pytest.raises(NotFitted):
        model.predict(X)
    model.fit(X[TRAIN], Y[TRAIN])
    before = model.predict(X[TEST])
    with pytest.raises(WidthMismatch):
        model.partial_fit(X[:, :5], Y)
    with pytest.raises(TargetKindMismatch):
        model.partial_fit(X[:2], [["a", "b"], ["c"]])
    assert np.array_equal(model.predict(X[TEST]), before)


@pytest.mark.parametrize("kind", [KNearest, ClassMeans])
@pytest.mark.parametrize("labels", [[17, 2**63 + 100, 2**63 + 200], [-1, 2**63 + 1, 2**64 - 1]])
def test_labels_on_both_sides_of_63_bits_are_predicted_as_they_are(kind, labels):
    X = 20.0 * np.eye(3).repeat(4, axis=0) + np.random.default_rng(0).normal(size=(12, 3))
    y = [label for label in labels for _ in range(4)]
    model = kind().fit(X, y)
    assert model.classes_.tolist() == labels
    assert model.predict(X).tolist() == y


@pytest.mark.parametrize(
    "as_table", [lambda f: f, pa.table, pl.DataFrame, lambda f: pa.table(f).to_reader(max_chunksize=70)]
)
@pytest.mark.parametrize("learn", ["fit", "partial_fit"])
def test_y_names_a_column_as_for_other_estimators(as_table, learn):
    frame = pd.DataFrame(X[TRAIN, 20:30], columns=list("abcdefghij"))
    labelled = frame.assign(digit=Y[TRAIN].astype(str))[[*"abc", "digit", *"defghij"]]
    named = getattr(KNearest(), learn)(as_table(labelled), "digit")
    separate = KNearest().fit(frame, Y[TRAIN].astype(str))
    assert named.feature_names_in_.tolist() == list("abcdefghij")
    assert np.array_equal(named.predict(X[TEST, 20:30]), separate.predict(X[TEST, 20:30]))
    with pytest.raises(SchemaMismatch, match=r"no column 'digits' for the targets.*'digit'"):
        getattr(named, learn)(as_table(labelled), "digits")
    assert named.n_samples_seen_ == 1200


def test_labels_of_another_type_than_those_learned_are_refused():
    model = KNearest().partial_fit([[0.0], [1.0]], [1, 2])
    for labels in (["a", "b"], [True, False]):
        with pytest.raises(InvalidTargets, match="rows so far had int labels"):
            model.partial_fit([[0.0], [1.0]], labels)
    assert model.classes_.tolist() == [1, 2]


def test_sparse_rows_without_a_stated_width_may_be_narrower():
    X = sp.csr_matrix([[1.0, 0.0, 5.0], [9.0, 2.0, 0.0]])
    nearest = KNearest().fit(X, ["a", "b"])
    assert nearest.predict(stream_dr.Block(X[:, :2], width_stated=False)).tolist() == ["a", "b"]
    with pytest.raises(WidthMismatch, match="4 features"):
        nearest.predict(stream_dr.Block(sp.csr_matrix((1, 4)), width_stated=False))
