"""How long components are: variance 1 of what is projected, whatever the number of rows; and shrinkage beside gamma.

Tolerances: 1e-9 of the largest entry where sums are compared with sums of the same rows twice or three times; they
differ by rounding, magnified by the condition of the scatter.
"""

from itertools import product
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import datasets
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from stream_dr import CCA, CCIPCA, ESTIMATORS, HSL, LDA, OPLS, SKM, SRP, IncrementalSKM, errors, random_fourier
from stream_dr.estimators.fitting.closed_form import ClosedForm
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.estimators.fitting.reservoir_method import ReservoirMethod
from stream_dr.estimators.fitting.two_stage_method import TwoStage
from stream_dr.solve.orientation import least_squares_map
from tests.naive import two_stage as naive
from tests.naive.scaling import shrunk, variances, within_variances
from tests.stream_dr.estimators.closed_form_cases import CASES, learn, rows
from tests.stream_dr.estimators.fitting.test_linear_classifier import svd_divides_by_rows
from tests.stream_dr.estimators.fitting.test_refining import Blocks, blocks
from tests.stream_dr.estimators.test_contract import close, part, targets
from tests.support.pairwise import pairwise

KINDS: dict[str, type[Estimator]] = {key: ESTIMATORS[key] for key in ESTIMATORS}
REPEATABLE = [key for key, kind in KINDS.items() if kind.additive]
TWO_STAGE = [key for key, kind in KINDS.items() if issubclass(kind, TwoStage)]
LABELS = np.array(["a", "b", "c"])


def hidden(n: int, d: int = 7, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """n rows of three classes from one law."""
    random = np.random.default_rng(seed)
    y = random.integers(0, 3, n)
    return random.normal(size=(n, d)) * np.linspace(1, 3, d) + 6.0 * np.eye(3, d)[y], y


SETTINGS = [{}, {"gamma": 3.0}, {"standardize": True}, {"shrinkage": 0.3}, {"decay": 1.0}]


def takes(key: str, params: dict[str, Any]) -> bool:
    return set(params) <= set(KINDS[key]().get_params())


@pytest.mark.parametrize(
    ("key", "times", "params"), pairwise(row for row in product(REPEATABLE, [2, 3], SETTINGS) if takes(row[0], row[2]))
)
def test_the_stream_given_again_changes_no_answer(key: str, times: int, params: dict[str, Any]) -> None:
    X, y = rows("plain")
    kind = KINDS[key]
    again = {name: value * times if name == "gamma" else value for name, value in params.items()}
    given = targets(key, y)
    once, often = learn(kind(**params), X, given), kind(**again)
    for _ in range(times):
        learn(often, X, given)
    close(often.transform(X), once.transform(X))
    weighted = kind(**again).fit(X, given, sample_weight=np.full(len(X), times))
    close(weighted.transform(X), once.transform(X))


@pytest.mark.test_all
@pytest.mark.parametrize("key", ["ccipca", "iskm"])
def test_a_recurrence_given_the_stream_again_goes_on_turning_to_the_batch_answer(key: str) -> None:
    """Its components are of unit length at any time; it is no sum, so what it has turned to is another after each pass."""
    X, y = hidden(300)
    y = np.minimum(y, 1)
    X = X * [5.0, 1, 1, 1, 1, 1, 1]  # one eigenvalue far above the others
    batch = SKM(n_components=1).fit(X, y) if key == "iskm" else ESTIMATORS["pca"](n_components=1).fit(X)
    model = CCIPCA(1) if key == "ccipca" else IncrementalSKM(1)
    misses = []
    for _ in range(4):
        model.partial_fit(X, targets(key, y))
        np.testing.assert_allclose(np.linalg.norm(model.components_, axis=1), 1.0)
        misses.append(1.0 - abs(float(model.components_[0] @ batch.components_[0])))
    assert misses == sorted(misses, reverse=True)
    assert misses[-1] < 1e-3


@pytest.mark.parametrize("key", [key for key, kind in KINDS.items() if issubclass(kind, ReservoirMethod)])
def test_a_sample_has_variance_1_along_every_component_whatever_its_size(key: str) -> None:
    """A row given twice is its own neighbour, so these answers do change; how far they spread does not."""
    X, _ = hidden(120)
    for given in (X[:40], X):
        Z = KINDS[key](n_neighbors=5).fit(given).transform(given)
        np.testing.assert_allclose(variances(Z), 1.0, rtol=1e-8)
    source = KINDS[key](n_neighbors=5, scaling="source").fit(X).transform(X)
    assert source.std() < 0.3 or key == "graph_wmv"  # its components are orthonormal
    unit = KINDS[key](n_neighbors=5).fit(X).transform(X)
    close(source / source.std(axis=0), unit, 1e-8)


@pytest.mark.parametrize("name", ["wine", "iris", "breast_cancer", "digits"])
def test_lda_is_scikit_learns_up_to_sign(name: str) -> None:
    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    theirs = LinearDiscriminantAnalysis(solver="svd").fit(X, y).transform(X)
    if not svd_divides_by_rows():
        theirs = theirs * np.sqrt(len(X) / (len(X) - len(np.unique(y))))
    close(learn(LDA(), X, y).transform(X), theirs, 1e-9)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("params", [{}, {"gamma": 5.0}, {"shrinkage": 0.4}, {"shrinkage": 1.0}, {"standardize": True}])
def test_within_class_variance_is_1_and_total_variance_where_there_is_none(case: str, params: dict[str, Any]) -> None:
    X, y = rows(case)
    Z = learn(LDA(**params), X, y).transform(X)
    within, total = within_variances(Z, y), variances(Z)
    flat = within < 1e-7 * total
    np.testing.assert_allclose(np.where(flat, total, within), 1.0, rtol=1e-6)
    assert flat.all() == (case == "few rows" and not {"gamma", "shrinkage"} & set(params))


@pytest.mark.parametrize(
    ("key", "params", "case"),
    pairwise(
        product(
            [key for key in TWO_STAGE if key != "lda"],
            [{}, {"gamma": 5.0}, {"shrinkage": 0.4}, {"shrinkage": 1.0}, {"standardize": True}],
            CASES,
        )
    ),
)
def test_projected_rows_have_variance_1(key: str, case: str, params: dict[str, Any]) -> None:
    X, y = rows(case)
    Z = learn(KINDS[key](**params), X, LABELS[y]).transform(X)
    np.testing.assert_allclose(variances(Z), 1.0, rtol=1e-6)


@pytest.mark.parametrize("laplacian", ["clique", "star"])
def test_label_sets_and_rows_without_labels_count_in_the_variance(laplacian: str) -> None:
    X, _ = hidden(90)
    sets = [[["a"], ["a", "b"], [], ["c"]][i % 4] for i in range(90)]
    for estimator in (HSL(laplacian), HSL(laplacian, gamma=2.0, scatter="exact")):
        np.testing.assert_allclose(variances(estimator.fit(X, sets).transform(X)), 1.0, rtol=1e-9)


def test_weights_and_decay_are_repetition() -> None:
    X, y = hidden(90)
    w = np.arange(90) % 4
    Z = LDA(gamma=1.0).fit(X, y, sample_weight=w).transform(X)
    np.testing.assert_allclose(within_variances(Z, y, w), 1.0, rtol=1e-9)
    aged = 0.95 ** np.arange(89, -1, -1.0)
    Z = learn(OPLS(decay=0.95), X, y).transform(X)
    np.testing.assert_allclose(variances(Z, aged), 1.0, rtol=1e-9)


@pytest.mark.parametrize("key", [*TWO_STAGE, "srp"])
def test_source_is_the_papers_length_and_the_same_direction(key: str) -> None:
    X, y = rows()
    unit, source = KINDS[key](gamma=2.0).fit(X, LABELS[y]), KINDS[key](gamma=2.0, scaling="source").fit(X, LABELS[y])
    W = source.components_.T
    if key != "srp":
        Xc = X - X.mean(axis=0)
        np.testing.assert_allclose(W.T @ (Xc.T @ Xc + 2.0 * np.eye(10)) @ W, np.eye(W.shape[1]), atol=1e-9)
    ratio = np.linalg.norm(unit.components_, axis=1) / np.linalg.norm(W, axis=0)
    np.testing.assert_allclose(unit.components_ / ratio[:, None], W.T, atol=1e-12 * np.abs(W).max())
    np.testing.assert_array_equal(unit.eigenvalues_, source.eigenvalues_)


def test_srp_is_of_covariances() -> None:
    X, y = rows()
    unit, source = SRP(random_state=1).fit(X, y), SRP(random_state=1, scaling="source").fit(X, y)
    np.testing.assert_allclose(unit.components_ * 90, source.components_, rtol=1e-12)


@pytest.mark.parametrize("key", REPEATABLE)
def test_transforms_spread_as_far_at_64000_rows_as_at_1000(key: str) -> None:
    X, y = hidden(64_000)
    if issubclass(KINDS[key], ReservoirMethod):
        pytest.skip("a sample: see above")
    given = targets(key, y)
    few, all_rows = KINDS[key]().fit(X[:1000], part(given, slice(1000))), KINDS[key]().fit(X, given)
    few_spread, spread = few.transform(X).std(axis=0), all_rows.transform(X).std(axis=0)
    shared = 2  # later ones of some methods are noise
    np.testing.assert_allclose(np.sort(few_spread)[-shared:], np.sort(spread)[-shared:], rtol=0.15)


@pytest.mark.parametrize("gamma", [0.0, 1.0])
@pytest.mark.parametrize("key", TWO_STAGE)
def test_from_the_diagonal_features_are_taken_to_be_uncorrelated(key: str, gamma: float) -> None:
    X, y = rows()
    W = KINDS[key](gamma=gamma, scatter="diagonal").fit(sp.csr_matrix(X), LABELS[y]).components_.T
    means = np.array([X[y == j].mean(axis=0) for j in range(3)])
    spread = ((X - means[y]) ** 2 if key == "lda" else (X - X.mean(axis=0)) ** 2).sum(axis=0)
    np.testing.assert_allclose(spread @ W**2 / len(X), 1.0, rtol=1e-9)


@pytest.mark.parametrize(
    ("key", "params", "passes"),
    pairwise(
        product(
            TWO_STAGE,
            [{}, {"gamma": 4.0}, {"gamma": 1e5}, {"shrinkage": 0.3}, {"standardize": True}],
            [2, 60],
        )
    ),
)
@pytest.mark.filterwarnings("ignore:refine stopped")
def test_a_refined_solution_has_the_variance_of_the_rows_after_every_pass(
    key: str, params: dict[str, Any], passes: int
) -> None:
    X, y = hidden(200, d=40)
    source = Blocks(blocks(sp.csr_matrix(X), LABELS[y], size=50))
    model = KINDS[key](scatter="diagonal", **params)
    for block in source.blocks:
        model.partial_fit(block.X, block.y)
    Z = model.refine(source, tol=1e-10, max_passes=passes).transform(X)
    assert model.solution_ == "refined"
    found = within_variances(Z, y) if key == "lda" else variances(Z)
    np.testing.assert_allclose(found, 1.0, rtol=1e-7)
    if passes > 2:
        exact = KINDS[key](scatter="exact", **params).fit(X, LABELS[y])
        np.testing.assert_allclose(exact.eigenvalues_, model.eigenvalues_, rtol=1e-6)


def test_shrinkage_1_leaves_nothing_to_refine() -> None:
    X, y = hidden(100)
    source = Blocks(blocks(X, y))
    model = LDA(shrinkage=1.0, scatter="diagonal").fit(X, y)
    with pytest.raises(errors.CannotRefine, match="shrinkage=1"):
        model.refine(source)


@pytest.mark.filterwarnings("ignore::stream_dr.errors.NarrowKernel")
def test_mapped_rows_have_variance_1_too() -> None:
    X, y = hidden(300)
    spec = random_fourier(50, gamma=0.05)
    Z = learn(LDA(gamma=1.0, feature_map=spec), X, y).transform(X)
    np.testing.assert_allclose(within_variances(Z, y), 1.0, rtol=1e-8)
    Z = learn(CCA(feature_map=spec), X, LABELS[y]).transform(X)
    np.testing.assert_allclose(variances(Z), 1.0, rtol=1e-8)


@pytest.mark.parametrize("s", [0.0, 0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("solver", ["lsqr", "eigen"])
@pytest.mark.parametrize("name", ["wine", "digits"])
def test_shrinkage_spans_scikit_learns_discriminants(name: str, solver: str, s: float) -> None:
    """Their decision functions, centred, lie in the span of the components, and it has as many dimensions."""
    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    if solver == "eigen" and name == "digits" and s == 0.0:
        pytest.skip("constant pixels: their solver needs a positive definite scatter")
    theirs = LinearDiscriminantAnalysis(solver=solver, shrinkage=s).fit(X, y)
    decisions = (theirs.coef_ - theirs.priors_ @ theirs.coef_).T
    ours = learn(LDA(shrinkage=s), X, y).components_
    assert len(ours) == len(theirs.classes_) - 1
    basis = np.linalg.qr(ours.T)[0]
    assert np.linalg.norm(decisions - basis @ (basis.T @ decisions)) <= 1e-9 * np.linalg.norm(decisions)


@pytest.mark.parametrize("s", [0.01, 0.5, 1.0])
@pytest.mark.parametrize("key", TWO_STAGE)
def test_shrinkage_is_its_definition(key: str, s: float) -> None:
    X, y = rows()
    Y, _ = naive.indicator(y.tolist())
    H = {"lda": naive.lda_h, "cca": naive.cca_h, "opls": lambda Y: Y, "hsl": lambda Y: naive.hsl_h(Y, "zhou")}[key](Y)
    means = np.array([X[y == j].mean(axis=0) for j in range(3)])
    trace = float(((X - means[y] if key == "lda" else X - X.mean(axis=0)) ** 2).sum())
    W, values = shrunk(X, H, s, trace)
    model = learn(KINDS[key](shrinkage=s, scaling="source"), X, LABELS[y])
    close(model.components_.T, W)
    np.testing.assert_allclose(model.eigenvalues_, values, rtol=1e-9)


def test_shrinkage_and_gamma_are_two_ways_to_say_one_thing() -> None:
    X, y = rows()
    with pytest.raises(errors.InvalidParameter, match=r"gamma=1\.0 and shrinkage=0\.5"):
        LDA(gamma=1.0, shrinkage=0.5).fit(X, y)
    for wrong in (-0.1, 1.1, float("nan"), True):
        with pytest.raises(errors.InvalidParameter, match="shrinkage"):
            OPLS(shrinkage=wrong).fit(X, y)
    with pytest.raises(errors.InvalidParameter, match="fourth moments"):
        CCA(shrinkage="auto").fit(X, y)  # type: ignore[arg-type]
    for key in (*TWO_STAGE, "srp"):
        with pytest.raises(errors.InvalidParameter, match="scaling='papers'"):
            KINDS[key](scaling="papers").fit(X, y)


def test_scaling_and_shrinkage_count_when_solving() -> None:
    X, y = rows()
    model = LDA().fit(X, y)
    unit = model.transform(X)
    close(model.set_params(scaling="source").transform(X), LDA(scaling="source").fit(X, y).transform(X), 1e-12)
    close(model.set_params(scaling="unit").transform(X), unit, 1e-12)
    shrunken = model.set_params(shrinkage=0.2)
    close(shrunken.transform(X), LDA(shrinkage=0.2).fit(X, y).transform(X), 1e-12)


def test_a_logistic_regression_behind_lda_is_as_good_as_behind_scikit_learns() -> None:
    X, y = datasets.load_breast_cancer(return_X_y=True)
    model = make_pipeline(StandardScaler(), LDA(), LogisticRegression())
    assert cross_val_score(model, X, y, cv=5).mean() > 0.96


def test_answers_of_a_stream_twice_as_long_need_no_map_of_scale() -> None:
    X, y = hidden(2000)
    model = LDA().fit(X[:1000], y[:1000])
    before = model.components_.T.copy()
    found, _ = least_squares_map(before, model.partial_fit(X[1000:], y[1000:]).components_.T)
    np.testing.assert_allclose(np.abs(np.diagonal(found)), 1.0, atol=0.1)


def test_every_closed_form_that_has_a_scale_has_the_parameter() -> None:
    """The others' components are orthonormal, or of unit weights (PLSDA), at any number of rows."""
    has = {key for key, kind in KINDS.items() if "scaling" in kind().get_params()}
    assert has == {*TWO_STAGE, "srp", "graph_wmv", "lpp", "npe", "laplacian_eigenmaps", "lle"}
    X, y = rows()
    for key, kind in KINDS.items():
        if key in has or not issubclass(kind, ClosedForm):
            continue
        W = kind().fit(X, targets(key, y)).components_
        if key == "plsda":
            assert np.linalg.norm(W[0]) == pytest.approx(1.0)
        else:
            np.testing.assert_allclose(W @ W.T, np.eye(len(W)), atol=1e-9)
