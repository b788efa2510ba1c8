"""Refine against exact scatter and against LSQR in memory; what it checks, when it stops, how it goes on."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from stream_dr import random_fourier
from stream_dr.batch.block import Block
from stream_dr.errors import CannotRefine, InvalidParameter, NotFitted
from stream_dr.estimators import make
from stream_dr.estimators.fitting import refining
from stream_dr.estimators.fitting.refining import Refining, refine_steps
from stream_dr.statistics.protocol import pack, unpack
from tests.naive.krylov import lsqr_two_stage, principal_angle
from tests.naive.two_stage import cca_h, hsl_h, indicator, lda_h


class Blocks:
    """A source in memory; counts how often it was read."""

    def __init__(self, blocks):
        self.blocks, self.passes = blocks, 0

    def events(self, after=-1, until=None):
        self.passes += 1
        yield from enumerate(self.blocks)


def rows(n=700, d=60, k=5, seed=0):
    """Sparse-looking rows of k classes, and label sets."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, k, n)
    X = (rng.standard_normal((n, d)) * np.linspace(0.3, 3, d) + rng.standard_normal((k, d))[y]) * (
        rng.random((n, d)) < 0.3
    )
    sets = [[int(a) for a in np.flatnonzero(rng.random(4) < 0.4)] for _ in range(n)]
    return X, y, sets


def blocks(X, y, size=100, weights=None):
    cut = range(0, X.shape[0], size)
    return [
        Block(
            X[i : i + size], None if y is None else y[i : i + size], None if weights is None else weights[i : i + size]
        )
        for i in cut
    ]


def learned(key, params, source):
    estimator = make(key, params)
    for block in source.blocks:
        if estimator.additive and block.weights is not None:
            estimator.partial_fit(block.X, block.y, block.weights)
        else:
            estimator.partial_fit(block.X, block.y)
    return estimator


CASES = [
    ("lda", {"gamma": 1.0}, "class"),
    ("lda", {}, "class"),
    ("opls", {"gamma": 0.1}, "sets"),
    ("cca", {"gamma": 0.5}, "sets"),
    ("hsl", {"laplacian": "zhou"}, "sets"),
    ("hsl", {"laplacian": "clique", "gamma": 1.0}, "sets"),
    ("hsl", {"laplacian": "star"}, "sets"),
    ("pca", {"n_components": 5}, None),
    ("plsda", {"n_components": 4}, "class"),
    ("plsda", {"n_components": 7}, "sets"),
    ("skm", {"a": 3.0}, "class"),
    ("skm", {"a": 0.5, "n_components": 6}, "class"),
    ("mmc", {}, "class"),
    ("mmc", {"alpha": -0.5, "n_components": 3}, "class"),
]


@pytest.mark.parametrize(("key", "params", "kind"), CASES)
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_equals_exact_scatter(key, params, kind, form):
    X, y, sets = rows()
    source = Blocks(blocks(form(X), {"class": y, "sets": sets, None: None}[kind]))
    exact = learned(key, {**params, "scatter": "exact"}, source)
    refined = learned(key, {**params, "scatter": "diagonal"}, source).refine(source, tol=1e-8, max_passes=60)
    assert refined.solution_ == "refined"
    assert refined.refine_report_.converged
    assert principal_angle(exact.components_.T, refined.components_.T) < 1e-7
    np.testing.assert_allclose(refined.eigenvalues_, exact.eigenvalues_, rtol=1e-7, atol=1e-9)
    np.testing.assert_array_equal(refined.mean_.shape, exact.mean_.shape)


@pytest.mark.parametrize("gamma", [0.0, 1e-2, 1.0])
@pytest.mark.parametrize("key", ["lda", "cca", "hsl", "opls"])
def test_equals_lsqr_in_memory_to_1e_6_rad(key, gamma):
    """Fewer rows than features: at gamma = 0 only the solution of minimum norm agrees."""
    X, y, sets = rows(n=120, d=200)
    source = Blocks(blocks(sp.csr_matrix(X), y if key == "lda" else sets, size=50))
    refined = learned(key, {"gamma": gamma, "scatter": "diagonal"}, source).refine(source, max_passes=200)
    Y = indicator(y.tolist() if key == "lda" else sets)[0]
    H = {"lda": lda_h(Y), "cca": cca_h(Y), "hsl": hsl_h(Y, "zhou"), "opls": Y}[key]
    reference = lsqr_two_stage(X - X.mean(0), H, gamma)
    assert principal_angle(reference[:, : refined.rank_], refined.components_.T) < 1e-6


@pytest.mark.parametrize("params", [{"decay": 0.995}, {"standardize": True}, {"decay": 0.99, "standardize": True}])
def test_decay_weights_and_standardize(params):
    X, y, _ = rows()
    weights = np.random.default_rng(3).random(len(y))
    source = Blocks(blocks(sp.csr_matrix(X), y, weights=weights))
    exact = learned("lda", {**params, "gamma": 0.1, "scatter": "exact"}, source)
    refined = learned("lda", {**params, "gamma": 0.1, "scatter": "diagonal"}, source).refine(source, 1e-9, 60)
    assert principal_angle(exact.components_.T, refined.components_.T) < 1e-8


def test_after_unlearning():
    X, y, _ = rows()
    source, left = Blocks(blocks(X, y)), Blocks(blocks(X[20:], y[20:]))
    refined = learned("lda", {"gamma": 0.1, "scatter": "diagonal"}, source).unlearn(X[:20], y[:20])
    exact = learned("lda", {"gamma": 0.1, "scatter": "exact"}, left)
    assert principal_angle(exact.components_.T, refined.refine(left, 1e-9, 60).components_.T) < 1e-8


def test_the_order_of_rows_counts_under_decay():
    X, y, _ = rows()
    lda = learned("lda", {"decay": 0.99, "gamma": 0.1, "scatter": "diagonal"}, Blocks(blocks(X, y)))
    with pytest.raises(CannotRefine, match=r"differ by more than rounding.* in their order"):
        lda.refine(Blocks(blocks(X[::-1], y[::-1])))


def test_a_large_offset():
    X, y, _ = rows()
    source = Blocks(blocks(X + 1e6, y))
    exact = learned("lda", {"scatter": "exact"}, Blocks(blocks(X, y)))
    refined = learned("lda", {"scatter": "diagonal"}, source).refine(source, 1e-8, 60)
    assert principal_angle(exact.components_.T, refined.components_.T) < 1e-6


def test_rows_without_targets_are_left_out():
    X, y, _ = rows()
    gaps = [None if i % 7 == 0 else f"class {label}" for i, label in enumerate(y.tolist())]
    there = [i for i, label in enumerate(gaps) if label is not None]
    source = Blocks(blocks(X, gaps))
    exact = learned("lda", {"scatter": "exact"}, Blocks(blocks(X[there], [gaps[i] for i in there])))
    refined = learned("lda", {"scatter": "diagonal"}, source).refine(source, 1e-8, 60)
    assert refined.refine_report_.passes[0].rows == len(there)
    assert principal_angle(exact.components_.T, refined.components_.T) < 1e-7


@pytest.mark.filterwarnings("ignore::stream_dr.errors.NarrowKernel")
def test_through_a_feature_map():
    X, y, _ = rows()
    params = {"gamma": 0.1, "feature_map": random_fourier(80, gamma=0.05)}
    source = Blocks(blocks(X, y))
    exact = learned("lda", {**params, "scatter": "exact"}, source)
    refined = learned("lda", {**params, "scatter": "diagonal"}, source).refine(source, 1e-8, 80)
    np.testing.assert_allclose(refined.transform(X[:5]), exact.transform(X[:5]), atol=1e-6)


def test_reports_every_pass_and_stops_on_angle_and_residual():
    X, y, _ = rows()
    source = Blocks(blocks(X, y))
    refined = learned("lda", {"gamma": 1.0, "scatter": "diagonal"}, source).refine(source, tol=1e-5, max_passes=50)
    passes = refined.refine_report_.passes
    assert [p.number for p in passes] == list(range(1, len(passes) + 1))
    assert source.passes == len(passes) < 30
    assert all(p.rows == 700 and p.seconds >= 0 for p in passes)
    assert passes[0].angle == pytest.approx(np.pi / 2)
    assert passes[-1].residual <= 1e-5
    assert passes[-1].angle <= 1e-5
    assert not any(p.converged for p in passes[:-1])


def test_the_refined_projection_stays_until_the_next_refine():
    X, y, _ = rows()
    source = Blocks(blocks(X, y))
    refined = learned("lda", {"gamma": 1.0, "scatter": "diagonal"}, source).refine(source)
    before = refined.components_.copy()
    refined.partial_fit(X[:50], y[:50])
    assert refined.solution_ == "refined"
    np.testing.assert_array_equal(refined.components_, before)
    with pytest.raises(CannotRefine, match="750"):
        refined.refine(source)
    np.testing.assert_array_equal(refined.components_, before)
    refined.refine(Blocks([*source.blocks, Block(X[:50], y[:50])]))
    assert np.abs(refined.components_ - before).max() > 1e-6


def test_unfinished_goes_on_where_it_was():
    X, y, _ = rows()
    source = Blocks(blocks(X, y))
    straight = learned("lda", {"scatter": "diagonal"}, source)
    stopped = learned("lda", {"scatter": "diagonal"}, source)
    with pytest.warns(ConvergenceWarning, match="after pass 9"):
        straight.refine(source, 0.0, max_passes=9)
    with pytest.warns(ConvergenceWarning, match="after pass 4"):
        stopped.refine(source, 0.0, max_passes=4)
    assert not stopped.refine_report_.converged
    refining = unpack(Refining, *pack(stopped.refine_report_.refining))
    with pytest.warns(ConvergenceWarning, match="larger max_passes"):
        stopped.refine(source, 0.0, max_passes=9, resume=refining)
    assert [p.number for p in stopped.refine_report_.passes] == [5, 6, 7, 8, 9]
    np.testing.assert_array_equal(stopped.components_, straight.components_)
    with pytest.raises(InvalidParameter, match="max_passes"):
        stopped.refine(source, 0.0, max_passes=9, resume=stopped.refine_report_.refining)


def test_progress_is_told_after_each_block():
    X, y, _ = rows(n=250)
    source = Blocks(blocks(X, y))
    estimator = learned("lda", {"scatter": "diagonal"}, source)
    seen = []
    steps = refine_steps(estimator, estimator.state_, source, progress=lambda *told: seen.append(told))
    next(steps)
    assert seen == [(1, 100), (1, 200), (1, 250)]


def spoilt(change):
    X, y, _ = rows()
    X, y, weights = X.copy(), [int(label) for label in y], np.ones(len(y))
    X, y, weights = change(X, y, weights)
    return X, y, weights


CHANGES = {
    "a row fewer": (lambda X, y, w: (X[1:], y[1:], w[1:]), "rows"),
    "another row": (lambda X, y, w: (np.vstack([X[1:], X[:1] + 0.01]), y[1:] + y[:1], w), "means"),
    "other weights": (lambda X, y, w: (X, y, w * 1.001), "weights"),
    "two labels exchanged": (lambda X, y, w: (X, [*y[::-1]], w), "targets|class weights"),
    "a label renamed": (lambda X, y, w: (X, [label + 7 for label in y], w), "labels"),
    "fewer features": (lambda X, y, w: (X[:, 1:], y, w), "features"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_refuses_a_source_that_was_not_learned(change):
    X, y, weights = spoilt(lambda X, y, w: (X, y, w))
    estimator = learned("lda", {"gamma": 1.0, "scatter": "diagonal"}, Blocks(blocks(X, y, weights=weights)))
    before = estimator.components_.copy()
    spoil, named = CHANGES[change]
    X, y, weights = spoilt(spoil)
    with pytest.raises(CannotRefine, match=named):
        estimator.refine(Blocks(blocks(X, y, weights=weights)))
    assert estimator.solution_ == "diagonal"
    np.testing.assert_array_equal(estimator.components_, before)


def test_the_order_of_the_source_does_not_matter_without_decay():
    X, y, _ = rows()
    source = Blocks(blocks(X, y))
    turned = Blocks(blocks(X[::-1], y[::-1], size=33))
    one = learned("lda", {"gamma": 1.0, "scatter": "diagonal"}, source).refine(source)
    other = learned("lda", {"gamma": 1.0, "scatter": "diagonal"}, source).refine(turned)
    assert principal_angle(one.components_.T, other.components_.T) < 1e-6


@pytest.mark.parametrize(
    ("key", "params", "said"),
    [
        ("ccipca", {}, "out-of-core"),
        ("class_means", {}, "out-of-core|exact"),
        ("pca", {}, "n_components"),
        ("skm", {"a": 0.5}, "n_components"),
    ],
)
def test_refuses_what_has_no_refined_solution(key, params, said):
    X, y, _ = rows(n=100)
    source = Blocks(blocks(X, y))
    scatter = {} if key in ("ccipca", "class_means") else {"scatter": "diagonal"}
    with pytest.raises(CannotRefine, match=said):
        learned(key, {**params, **scatter}, source).refine(source)


def test_refuses_bad_settings_and_an_empty_state():
    X, y, _ = rows(n=100)
    source = Blocks(blocks(X, y))
    estimator = learned("lda", {"scatter": "diagonal"}, source)
    for wrong in ({"tol": -1.0}, {"max_passes": 0}, {"tol": float("nan")}):
        with pytest.raises(InvalidParameter):
            estimator.refine(source, **wrong)
    with pytest.raises(NotFitted):
        make("lda", {}).refine(source)


def test_one_class_has_no_component():
    X, y, _ = rows(n=100)
    source = Blocks(blocks(X, np.zeros_like(y)))
    refined = learned("lda", {"gamma": 1.0, "scatter": "diagonal"}, source).refine(source)
    assert refined.rank_ == 0
    assert refined.refine_report_.converged
    assert len(refined.refine_report_.passes) == 1


def test_a_basis_past_its_size_is_cut_down_and_still_converges(monkeypatch):
    monkeypatch.setattr("stream_dr.estimators.fitting.refining.MAX_BASIS_BYTES", 0)
    X, _, _ = rows()
    source = Blocks(blocks(X, None))
    exact = learned("pca", {"n_components": 3, "scatter": "exact"}, source)
    refined = learned("pca", {"n_components": 3, "scatter": "diagonal"}, source).refine(source, 1e-6, 200)
    assert refined.refine_report_.converged
    assert principal_angle(exact.components_.T, refined.components_.T) < 1e-4


@pytest.mark.parametrize(("key", "params"), [("mmc", {}), ("skm", {"a": 3.0})])
@pytest.mark.parametrize("basis_bytes", [10**9, 0])
def test_an_answer_that_the_first_basis_does_not_hold_is_found(key, params, basis_bytes, monkeypatch):
    monkeypatch.setattr(refining, "MAX_BASIS_BYTES", basis_bytes)
    y = np.arange(200) % 2
    X = np.random.default_rng(0).normal(size=(200, 4)) * [5, 2, 1, 0.1] + np.outer(y, [4, 1.6, 0.8, 1.0])
    source = Blocks(blocks(X, y))
    exact = learned(key, params, source).eigenvalues_.copy()
    assert len(exact) == 1
    refined = learned(key, {**params, "scatter": "diagonal"}, source).refine(source)
    assert refined.refine_report_.passes[0].components == 0
    assert refined.refine_report_.converged
    np.testing.assert_allclose(refined.eigenvalues_, exact, rtol=1e-9)


@pytest.mark.parametrize("key", ["lda", "pca"])
def test_a_second_refine_begins_at_the_first_ones_answer(key):
    X, y, _ = rows()
    params = {"n_components": 3, "scatter": "diagonal"} if key == "pca" else {"gamma": 1.0, "scatter": "diagonal"}
    again = learned(key, params, Blocks(blocks(X, y))).refine((X, y), 1e-9, 200)
    again.refine((X, y), 1e-9, 200)
    passes = again.refine_report_.passes
    assert passes[0].residual < 1e-6  # cold it is of the order of 1
    assert len(passes) <= 3


def test_what_it_reads():
    X, y, _ = rows()
    params = {"gamma": 1.0, "scatter": "diagonal"}
    batches = [(X[:300], y[:300]), (X[300:], y[300:])]
    whole = learned("lda", params, Blocks(blocks(X, y))).refine(Blocks(blocks(X, y)), 1e-9, 60)
    for given in ((X, y), batches, [Block(*batch) for batch in batches], Anew(batches)):
        other = learned("lda", params, Blocks(blocks(X, y))).refine(given, 1e-9, 60)
        assert principal_angle(whole.components_.T, other.components_.T) < 1e-7
    for once in (iter(batches), (batch for batch in batches)):
        with pytest.raises(InvalidParameter, match=f"{type(once).__name__}, which can be read once"):
            whole.refine(once)
    for wrong, named in (
        (3, "int"),
        (X, "ndarray"),
        ([X, y], "batch 0 of the source is of type ndarray"),
        ("text", "str"),
    ):
        with pytest.raises(InvalidParameter, match=named):
            whole.refine(wrong)


class Anew:
    """Batches that can be iterated again and again, and are no list. once: every time, what is left of them."""

    def __init__(self, batches, once=False):
        self.batches = iter(batches) if once else batches

    def __iter__(self):
        return iter(self.batches)


@pytest.mark.parametrize("key", ["lda", "pca"])
def test_a_source_that_ends_after_the_first_pass_is_refused(key):
    X, y, _ = rows()
    params = {"n_components": 2, "scatter": "diagonal"} if key == "pca" else {"gamma": 1.0, "scatter": "diagonal"}
    model = learned(key, params, Blocks(blocks(X, y)))
    with pytest.raises(CannotRefine, match="0 rows in this pass"):
        model.refine(Anew([(X, y)], once=True))
    assert not hasattr(model, "refine_report_")


def test_a_batch_without_targets_is_passed_over():
    X, y, _ = rows()
    labelled = Blocks(blocks(X, y))
    mixed = Blocks([labelled.blocks[0], Block(X[:50] + 1.0), *labelled.blocks[1:]])
    params = {"gamma": 1.0, "scatter": "diagonal"}
    one = learned("lda", params, labelled).refine(labelled)
    other = learned("lda", params, labelled).refine(mixed)
    np.testing.assert_array_equal(one.components_, other.components_)


@pytest.mark.parametrize(("key", "params"), [("lda", {"gamma": 1.0}), ("skm", {"a": 1.0}), ("mmc", {"alpha": 0.0})])
def test_what_is_exact_already_is_left_as_it_is(key, params):
    X, y, _ = rows()
    source = Blocks(blocks(X, y))
    exact = learned(key, params, source)
    before = exact.components_
    with pytest.warns(UserWarning, match="is exact already"):
        assert exact.refine(source) is exact
    assert source.passes == 0
    assert exact.solution_ == "exact"
    np.testing.assert_array_equal(exact.components_, before)
    exact.partial_fit(X[:50], y[:50])
    assert np.abs(exact.components_ - before).max() > 1e-9
