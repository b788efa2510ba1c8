"""nystroem: with all rows as landmarks the kernel methods themselves; else drawn by row number, kept, merged, refused."""

import json

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.decomposition import KernelPCA
from sklearn.gaussian_process.kernels import Matern
from sklearn.metrics import pairwise

import stream_dr
from stream_dr import CCIPCA, LDA, PCA, nystroem
from stream_dr.errors import CannotMerge, CannotUnlearn, InvalidParameter, NotFinite, WidthMismatch
from stream_dr.estimators import make
from stream_dr.statistics.protocol import pack
from tests.naive import kernels

rng = np.random.default_rng(17)
X = rng.normal(size=(80, 3))
NEW = rng.normal(size=(15, 3))
Y = (X[:, 0] * X[:, 1] > 0).astype(int) + (X[:, 2] > 1)
KERNELS = {
    "rbf": lambda a, b: kernels.rbf(a, b, 0.3),
    "laplace": lambda a, b: kernels.laplace(a, b, 0.3),
    "polynomial": lambda a, b: (0.3 * a @ b.T + 1.0) ** 3,
    "linear": lambda a, b: a @ b.T,
}


def signed(a, b):
    """a with the signs of b's columns."""
    return a * np.sign((a * b).sum(axis=0))


def batches(model, rows=X, y=Y, size=7):
    for i in range(0, len(rows), size):
        model.partial_fit(rows[i : i + size], y[i : i + size])
    return model


@pytest.mark.parametrize("kernel", KERNELS)
def test_all_rows_as_landmarks_are_kernel_pca_and_kernel_lda(kernel):
    k, spec = KERNELS[kernel], nystroem(80, kernel, gamma=0.3)
    K, new = k(X, X), k(NEW, X)
    peer = KernelPCA(3, kernel="precomputed", eigen_solver="dense").fit(K)
    pca = PCA(n_components=3, feature_map=spec)
    for model in (pca.fit(X), batches(PCA(n_components=3, feature_map=spec))):
        expected = peer.transform(new)
        assert signed(model.transform(NEW), expected) == pytest.approx(expected, abs=1e-8 * np.abs(expected).max())
    assert pca.eigenvalues_ == pytest.approx(peer.eigenvalues_, rel=1e-8)
    expected, values = kernels.kernel_lda(K, new, Y, 0.5)
    lda = batches(LDA(gamma=0.5, scaling="source", feature_map=spec))
    assert lda.eigenvalues_ == pytest.approx(values, rel=1e-8)
    assert signed(lda.transform(NEW), expected) == pytest.approx(expected, abs=1e-8 * np.abs(expected).max())


@pytest.mark.parametrize(("features", "gamma"), [(1, 1.0), (2, 0.05), (2, 0.5), (3, 0.1)])
def test_rows_that_a_smooth_kernel_can_hardly_tell_apart_are_kernel_pca(features, gamma):
    rows = np.random.default_rng(features).normal(size=(300, features))
    peer = KernelPCA(2, kernel="rbf", gamma=gamma, eigen_solver="dense").fit(rows)
    pca = PCA(n_components=2, feature_map=nystroem(300, gamma=gamma)).fit(rows)
    assert pca.eigenvalues_ == pytest.approx(peer.eigenvalues_, rel=1e-8)


def test_few_landmarks_give_the_kernel_of_rows_projected_onto_them():
    pca = PCA(feature_map=nystroem(20, gamma=0.3)).fit(X)
    phi = pca.projection().landmarks
    spec = stream_dr.feature_maps.feature_map(pca.feature_map)
    made = spec.coordinates(phi, NEW)
    Z, k = X[:20], KERNELS["rbf"]
    assert np.array_equal(phi.rows, Z)
    assert made @ made.T == pytest.approx(k(NEW, Z) @ np.linalg.pinv(k(Z, Z)) @ k(Z, NEW), abs=1e-8)


def test_landmarks_are_drawn_by_row_number_whatever_the_batches():
    spec = nystroem(10, gamma=0.3, first=40, seed=3)
    drawn = [batches(PCA(feature_map=spec), size=size).state_.landmarks.rows for size in (1, 7, 80)]
    assert len(drawn[0]) == 10
    assert all(np.array_equal(rows, drawn[0]) for rows in drawn)
    assert not np.array_equal(drawn[0], X[:10])
    other = PCA(feature_map=nystroem(10, gamma=0.3, first=40, seed=4)).fit(X).state_.landmarks.rows
    assert not np.array_equal(drawn[0], other)
    counts = np.zeros(40)
    for seed in range(200):
        made = stream_dr.feature_maps.feature_map(nystroem(10, gamma=0.3, first=40, seed=seed))
        rows = made.add_landmarks_from_batch(made.initial_landmarks(), stream_dr.Block(X)).rows
        counts += [row in rows for row in X[:40]]
    assert 20 < counts.min() <= counts.max() < 85  # 50 each, within five standard deviations


def test_a_landmark_has_exact_zeros_in_the_coordinates_of_later_ones_as_before_they_came():
    spec = stream_dr.feature_maps.feature_map(nystroem(30, gamma=0.3))
    made = spec.coordinates(spec.add_landmarks_from_batch(spec.initial_landmarks(), stream_dr.Block(X)), X[:30])
    assert not np.triu(made, 1).any()


def test_rows_that_others_represent_are_passed_over():
    twice = np.repeat(X, 2, axis=0)
    landmarks = PCA(feature_map=nystroem(30, gamma=0.3)).fit(twice).state_.landmarks
    assert np.array_equal(landmarks.rows, X[:30])


def test_sparse_rows_that_grow_are_dense_rows():
    wider = PCA(3, feature_map=nystroem(30, gamma=0.3))
    narrow = np.where(np.arange(3) < 2, X[:10], 0.0)
    wider.partial_fit(sp.csr_matrix(narrow[:, :2])).partial_fit(sp.csr_matrix(X[10:]))
    plain = PCA(3, feature_map=nystroem(30, gamma=0.3)).fit(np.vstack([narrow, X[10:]]))
    assert signed(wider.transform(sp.csr_matrix(NEW)), plain.transform(NEW)) == pytest.approx(plain.transform(NEW))
    assert sp.issparse(wider.state_.landmarks.rows)


def test_saved_in_the_middle_and_continued_is_the_same(tmp_path):
    spec = nystroem(30, gamma=0.3)
    whole = PCA(3, feature_map=spec).partial_fit(X[:20]).partial_fit(X[20:])
    PCA(3, feature_map=spec).partial_fit(X[:20]).save(tmp_path / "saved")
    again = stream_dr.load(tmp_path / "saved").partial_fit(X[20:])
    a, b = pack(again.state_)[0], pack(whole.state_)[0]
    assert all(np.array_equal(a[name], b[name]) for name in b)
    assert "landmarks.factor" in b
    assert np.array_equal(again.transform(NEW), whole.transform(NEW))


@pytest.mark.parametrize("rows", [X[:9], sp.csr_matrix(X[:9]), X[:9].tolist()], ids=["dense", "sparse", "lists"])
def test_given_landmarks_merge_and_unlearn_and_travel_as_json(rows):
    spec = json.loads(json.dumps(nystroem(rows, gamma=0.3)))
    whole, part = make("pca", {"feature_map": spec}).fit(X), make("pca", {"feature_map": spec}).fit(X[50:])
    assert whole.eigenvalues_ == pytest.approx(PCA(feature_map=nystroem(X[:9], gamma=0.3)).fit(X).eigenvalues_)
    merged = make("pca", {"feature_map": spec}).fit(X[:50]).merge(part)
    assert merged.eigenvalues_ == pytest.approx(whole.eigenvalues_)
    assert merged.unlearn(X[:50]).eigenvalues_ == pytest.approx(part.eigenvalues_)
    with pytest.raises(WidthMismatch):
        merged.partial_fit(np.ones((3, 4)))


def test_given_sparse_landmarks_may_be_narrower_than_the_rows():
    Z = np.where(np.arange(3) < 2, X[:9], 0.0)
    plain = PCA(2, feature_map=nystroem(Z, gamma=0.3)).fit(X)
    for rows in (X, sp.csr_matrix(X)):
        model = PCA(2, feature_map=nystroem(sp.csr_matrix(Z[:, :2]), gamma=0.3)).fit(rows)
        assert model.n_features_in_ == 3
        assert signed(model.transform(rows[:15]), plain.transform(X[:15])) == pytest.approx(plain.transform(X[:15]))
    with pytest.raises(WidthMismatch):
        PCA(feature_map=nystroem(Z)).fit(sp.csr_matrix(np.ones((3, 4))))
    with pytest.raises(WidthMismatch):
        PCA(feature_map=nystroem(Z)).fit(X[:, :2])


def test_landmarks_of_their_own_do_not_merge_and_are_not_unlearned():
    a, b = (PCA(feature_map=nystroem(10, gamma=0.3)).fit(rows) for rows in (X[:40], X[40:]))
    with pytest.raises(CannotMerge, match="give both the same"):
        a.merge(b)
    with pytest.raises(CannotUnlearn, match="landmarks"):
        a.unlearn(X[8:12])
    assert a.unlearn(X[10:20]).n_samples_seen_ == 30
    with pytest.raises(CannotUnlearn):
        PCA(feature_map=nystroem(10, gamma=0.3, first=20)).fit(X).unlearn(X[70:])


def test_other_landmarks_are_the_reason_named_though_the_inner_states_do_not_merge_either():
    a, b = (CCIPCA(2, feature_map=nystroem(10, gamma=0.3)).fit(rows).state_ for rows in (X[:40], X[40:]))
    with pytest.raises(CannotMerge, match="give both the same"):
        a.merge(b)


@pytest.mark.parametrize("refused", [np.full((2, 3), 1e99), np.ones((2, 4))], ids=["too large", "too wide"])
def test_a_refused_batch_leaves_landmarks_as_they_were(refused):
    pca = PCA(feature_map=nystroem(30, "polynomial", gamma=0.3, degree=5)).fit(X[:10])
    before = pack(pca.state_)[0]
    with pytest.raises((NotFinite, WidthMismatch)):
        pca.partial_fit(refused)
    assert all(np.array_equal(value, before[name]) for name, value in pack(pca.state_)[0].items())


def test_refine_is_the_exact_solution_on_landmarks():
    spec = nystroem(30, gamma=0.3, first=60)
    parts = [(X[i : i + 20], Y[i : i + 20]) for i in range(0, 80, 20)]
    diagonal, exact = (LDA(gamma=0.1, scatter=kept, feature_map=spec) for kept in ("diagonal", "exact"))
    for rows, y in parts:
        diagonal.partial_fit(rows, y)
        exact.partial_fit(rows, y)
    diagonal.refine(parts, 1e-10, 100)
    expected = exact.transform(NEW)
    assert signed(diagonal.transform(NEW), expected) == pytest.approx(expected, abs=1e-6)


def test_kernels_are_those_of_scikit_learn_dense_and_sparse():
    for kernel, peer in (("rbf", "rbf"), ("laplace", "laplacian"), ("polynomial", "polynomial"), ("linear", "linear")):
        spec = stream_dr.feature_maps.feature_map(nystroem(5, kernel, gamma=0.3))
        options = {} if kernel == "linear" else {"gamma": 0.3}
        expected = pairwise.pairwise_kernels(NEW, X, metric=peer, **options)
        for a in (NEW, sp.csr_matrix(NEW)):
            for b in (X, sp.csr_matrix(X)):
                assert spec.kernel_values(a, b) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("nu", [0.5, 1.0, 1.5, 2.5, 30.0])
def test_the_matern_kernel_is_that_of_scikit_learn(nu):
    spec = stream_dr.feature_maps.feature_map(nystroem(5, "matern", gamma=0.3, nu=nu))
    expected = Matern(length_scale=0.6**-0.5, nu=nu)(NEW, X)
    assert kernels.matern(NEW, X, 0.3, nu) == pytest.approx(expected, abs=1e-10)
    for a in (NEW, sp.csr_matrix(NEW)):
        assert spec.kernel_values(a, X) == pytest.approx(expected, abs=1e-10)
    near = np.concatenate([X[:1], X[:1], X[:1] + 1e-12, X[:1] + 1e9])
    assert spec.kernel_values(near[:1], near) == pytest.approx(np.array([[1.0, 1.0, 1.0, 0.0]]), abs=1e-6)


def test_the_matern_kernel_of_large_nu_is_nearly_rbf():
    matern, rbf = (stream_dr.feature_maps.feature_map(nystroem(5, k, gamma=0.3, nu=100.0)) for k in ("matern", "rbf"))
    assert matern.kernel_values(NEW, X) == pytest.approx(rbf.kernel_values(NEW, X), abs=0.01)


@pytest.mark.parametrize(
    "wrong",
    [
        {"landmarks": 0},
        {"landmarks": "all"},
        {"landmarks": []},
        {"landmarks": [["a"]]},
        {"landmarks": [{"indices": [0]}]},
        {"kernel": "cosine"},
        {"nu": 0.0},
        {"nu": 101},
        {"gamma": 0.0},
        {"degree": 0},
        {"coef0": -1.0},
        {"first": 3},
        {"landmarks": [[1.0]], "first": 30},
        {"seed": -1},
    ],
    ids=str,
)
def test_wrong_parameters_are_refused(wrong):
    with pytest.raises(InvalidParameter):
        nystroem(**wrong)
    with pytest.raises(InvalidParameter):
        make("lda", {"feature_map": {"map": "nystroem", **wrong}})
