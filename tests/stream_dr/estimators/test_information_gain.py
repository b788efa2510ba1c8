"""InformationGain against the textbook's entropies and scikit-learn's mutual information."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits
from sklearn.feature_selection import SelectKBest
from sklearn.metrics import mutual_info_score
from sklearn.utils.estimator_checks import check_estimator

from stream_dr import load
from stream_dr.errors import CannotUnlearn, InvalidParameter, TargetKindMismatch, WidthMismatch
from stream_dr.estimators.information_gain import InformationGain, information_gain
from stream_dr.statistics.moments.sparse_sums import WEIGHT
from stream_dr.statistics.protocol import pack
from tests.naive.information_gain import information_gain as naive_gain
from tests.naive.information_gain import multilabel_information_gain

rng = np.random.default_rng(7)
X = (rng.random((200, 12)) < 0.3) * rng.normal(size=(200, 12))
y = rng.integers(0, 4, 200) * (X[:, 2] != 0) + (X[:, 5] > 0)
Y_SETS = [[label for label in range(3) if X[i, label] != 0 and rng.random() < 0.8] for i in range(200)]


def gains(model):
    return information_gain(model.state_)


def test_equals_the_textbook_on_dense_and_sparse_rows():
    expected = naive_gain(X.tolist(), y.tolist())
    for rows in (X, sp.csr_matrix(X)):
        assert gains(InformationGain().fit(rows, y)) == pytest.approx(expected, abs=1e-14)


def test_equals_scikit_learns_mutual_information_on_digits():
    digits = load_digits()
    model = InformationGain(n_components=10).fit(digits.data, digits.target)
    mutual = np.array([mutual_info_score(digits.data[:, j] != 0, digits.target) for j in range(64)])
    assert gains(model) == pytest.approx(mutual, abs=1e-12)
    assert list(model.scores_) == sorted(model.scores_, reverse=True)
    assert model.scores_ == pytest.approx(np.sort(mutual)[::-1][:10], abs=1e-12)


@pytest.mark.parametrize("rows", [7, 49, 200, 333])
def test_a_constant_presence_has_gain_exactly_zero_whatever_the_counts(rows):
    random = np.random.default_rng(rows)
    constant = np.column_stack([np.zeros(rows), np.ones(rows)])
    assert (gains(InformationGain().fit(constant, random.integers(0, 7, rows))) == 0).all()


def test_several_labels_a_row_sum_over_labels():
    model = InformationGain().fit(X, Y_SETS)
    assert gains(model) == pytest.approx(multilabel_information_gain(X.tolist(), Y_SETS), abs=1e-14)
    assert set(model.columns_[:3]) == {0, 1, 2}


@pytest.mark.parametrize("size", [1, 7, 64, 200])
def test_every_batching_gives_the_same_bits(size):
    whole = InformationGain(n_components=4).fit(X, y)
    parts = InformationGain(n_components=4)
    for start in range(0, 200, size):
        parts.partial_fit(sp.csr_matrix(X[start : start + size]), y[start : start + size])
    assert np.array_equal(parts.transform(X), whole.transform(X))
    assert np.array_equal(gains(parts), gains(whole)[:]) or gains(parts) == pytest.approx(gains(whole), abs=1e-15)


def test_merge_matches_labels_by_name_whatever_their_order():
    order = np.argsort(-y, kind="stable")
    a = InformationGain().fit(X[order[:90]], y[order[:90]])
    b = InformationGain().fit(sp.csr_matrix(X[order[90:]]), y[order[90:]])
    assert set(a.state_.labels) != set(b.state_.labels)
    assert gains(b.merge(a)) == pytest.approx(gains(InformationGain().fit(X, y)), abs=1e-14)


def test_the_empty_state_is_an_identity_of_merge():
    full, empty = InformationGain().fit(X, y).state_, InformationGain().partial_fit(X[:0], y[:0]).state_
    for merged in (full.merge(empty), empty.merge(full)):
        assert merged.rows == full.rows
        assert merged.labels == full.labels
        assert np.array_equal(merged.features.cross, full.features.cross)


def test_unlearn_leaves_what_was_never_learned():
    model = InformationGain().fit(X, y).unlearn(X[50:], y[50:])
    before = InformationGain().fit(X[:50], y[:50])
    assert gains(model) == pytest.approx(gains(before), abs=1e-14)
    assert model.n_samples_seen_ == 50


def test_unlearning_a_whole_class_with_uneven_weights_leaves_no_trace():
    w = rng.random(200)
    keep = y != y[0]
    model = InformationGain().fit(X, y, w).unlearn(X[~keep], y[~keep], w[~keep])
    at = model.state_.labels.index(y[0])
    assert model.state_.targets.label_weights[at] == 0
    assert not model.state_.features.cross[:, at].any()
    assert gains(model) == pytest.approx(gains(InformationGain().fit(X[keep], y[keep], w[keep])), abs=1e-12)


@pytest.mark.parametrize(
    ("rows", "labels"),
    [(X, y), (X[:60], np.full(60, 77)), (np.ones((12, 12)), np.full(12, y.min())), (X[:60] + 9, y[:60])],
    ids=["more rows", "unknown label", "wrong label", "features never present"],
)
def test_more_than_was_learned_is_refused_and_changes_nothing(rows, labels):
    model = InformationGain().fit(X[:60], y[:60])
    before = pack(model.state_)[0]
    with pytest.raises(CannotUnlearn):
        model.unlearn(rows, labels)
    assert all(np.array_equal(a, before[name]) for name, a in pack(model.state_)[0].items())


def test_whole_weights_equal_repeated_rows():
    w = rng.integers(0, 4, 200)
    weighted = InformationGain().fit(X, y, w)
    repeated = InformationGain().fit(np.repeat(X, w, axis=0), np.repeat(y, w))
    assert gains(weighted) == pytest.approx(gains(repeated), abs=1e-14)


def test_a_feature_in_every_row_or_in_none_and_a_single_class_tell_nothing():
    rows = np.column_stack([np.ones(50), np.zeros(50), rng.integers(0, 2, 50)])
    labels = rng.integers(0, 3, 50)
    assert not gains(InformationGain().fit(rows, labels))[:2].any()
    assert not gains(InformationGain().fit(rows, np.zeros(50, dtype=int))).any()
    assert not gains(InformationGain().fit(rows, [[] for _ in rows])).any()


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_stored_zeros_are_absent(zero):
    rows = sp.csr_matrix(np.ones((4, 2)))
    rows.data[:] = [zero, 1, 5, -1, zero, 1, 1, 1]
    for X in (rows, rows.toarray()):
        model = InformationGain().fit(X, [0, 1, 0, 1])
        assert list(model.state_.features.features[:, WEIGHT]) == [2, 4]
    assert list(rows.data) == [zero, 1, 5, -1, zero, 1, 1, 1]


def test_dense_rows_fix_the_features_also_after_loading(tmp_path):
    InformationGain().fit(X, y).save(tmp_path / "model")
    model = load(tmp_path / "model")
    with pytest.raises(WidthMismatch):
        model.partial_fit(sp.csr_matrix(np.ones((1, 13))), y[:1])
    assert gains(model.partial_fit(X, y)) == pytest.approx(gains(InformationGain().fit(X, y)), abs=1e-14)


def test_rows_that_leave_a_feature_in_every_row_can_be_unlearned():
    rows = np.ones((20, 2))
    rows[:5, 0] = 0
    model = InformationGain().fit(rows, y[:20]).unlearn(rows[:5], y[:5])
    assert not gains(model).any()
    assert model.n_samples_seen_ == 15


def test_sparse_rows_may_grow_features_and_labels():
    wide = sp.csr_matrix(([1.0, 1.0], ([0, 1], [3, 40])), shape=(2, 41))
    model = InformationGain().partial_fit(sp.csr_matrix(X), y).partial_fit(wide, [99, 98])
    assert model.n_features_in_ == 41
    assert gains(model) == pytest.approx(
        naive_gain(np.vstack([np.pad(X, ((0, 0), (0, 29))), wide.toarray()]).tolist(), [*y.tolist(), 99, 98]), abs=1e-14
    )


def test_keeps_columns_and_names_them():
    model = InformationGain(n_components=2).fit(X, y)
    assert np.array_equal(model.transform(X), X[:, model.columns_])
    assert list(model.get_feature_names_out()) == [f"x{j}" for j in model.columns_]
    assert model.transform(sp.csr_matrix(X)).shape == (200, 2)
    assert InformationGain().fit(X, y).transform(X).shape == (200, 12)


def test_its_support_is_what_a_selector_of_scikit_learn_says():
    X, y = load_digits(return_X_y=True)
    model = InformationGain(n_components=9).fit(X, y)
    peer = SelectKBest(lambda rows, labels: information_gain(model.state_), k=9).fit(X, y)
    np.testing.assert_array_equal(model.get_support(), peer.get_support())
    np.testing.assert_array_equal(model.get_support(indices=True), peer.get_support(indices=True))


def test_continuous_targets_are_refused():
    with pytest.raises(TargetKindMismatch):
        InformationGain().fit(X, rng.normal(size=(200, 2)))


def test_scikit_learns_checks():
    check_estimator(InformationGain(), on_skip=None)


def test_names_of_another_number_than_the_features_are_refused():
    fitted = InformationGain(n_components=1).fit([[1, 0], [1, 2], [0, 3]], ["a", "a", "b"])
    with pytest.raises(InvalidParameter, match="1 names"):
        fitted.get_feature_names_out(["only one"])
