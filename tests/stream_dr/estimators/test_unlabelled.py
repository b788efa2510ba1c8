"""Rows without a label that are learned: SKM and WMV against their definitions over all rows."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from stream_dr import SKM, WMV, errors, load
from stream_dr.batch.block import Block
from stream_dr.batch.targets import class_targets
from stream_dr.estimators import make
from stream_dr.running.advance import ParsedEvent, apply_event_or_rebuild
from tests.naive import criteria
from tests.stream_dr.estimators.closed_form_cases import CASES, rows, same_eigenpairs
from tests.support.batches import opened, put

PAIRS = [[0, 0, -2.0], [0, 1, 0.5], [1, 2, -0.2]]

WAYS: list[tuple[str, dict[str, Any]]] = [
    ("skm", {"a": 0.5}),
    ("skm", {"a": -1.0}),
    ("wmv", {"alpha": -0.2, "beta": 3.0}),
    ("wmv", {"alpha": -0.5, "pairs": "share"}),
    ("wmv", {"beta": 1.5, "pair_weights": PAIRS}),
]


def partly_labelled(case: str = "plain") -> tuple[np.ndarray, np.ndarray, list[int | None]]:
    """Rows, their classes, and their labels, of which half are unknown."""
    X, y = rows(case)
    return X, y, [int(label) if i % 2 == 0 else None for i, label in enumerate(y)]


def definition(key: str, params: dict[str, Any], X: np.ndarray, labels: list[int | None]) -> np.ndarray:
    """The matrix whose eigenvectors are the components, from its definition."""
    known = np.array([label is not None for label in labels])
    y = np.array([-1 if label is None else label for label in labels])
    centred = X - X.mean(axis=0)
    if key == "skm":
        total = centred.T @ centred / len(X)
        return (1 + params["a"]) * criteria.between(X[known], y[known]) + (1 - params["a"]) * total

    beta, alpha = params.get("beta", 1.0), params.get("alpha", -1.0)
    same = (y[:, None] == y) & known
    if params.get("pairs") == "share":
        C = beta / len(X) + np.where(same, alpha / (y[:, None] == y).sum(axis=1), 0.0)
    else:
        C = np.where(same, alpha, beta)
    for a, b, weight in params.get("pair_weights", ()):
        C[np.ix_(y == a, y == b)] = C[np.ix_(y == b, y == a)] = weight
    return criteria.laplacian(centred, C)


@pytest.mark.parametrize(("key", "params"), WAYS)
@pytest.mark.parametrize("case", CASES)
def test_is_the_definition_over_all_rows(key: str, params: dict[str, Any], case: str) -> None:
    X, _, labels = partly_labelled(case)
    values, vectors = criteria.top(definition(key, params, X, labels))
    same_eigenpairs(
        make(key, {**params, "unlabelled": "use"}).fit(X, labels), values[values > 1e-9 * values[0]], vectors, 1e-7
    )


@pytest.mark.parametrize(("key", "params"), WAYS)
def test_batches_merges_unlearning_and_sparse_rows_agree(key: str, params: dict[str, Any]) -> None:
    X, _, labels = partly_labelled()
    params = {**params, "unlabelled": "use"}
    whole = make(key, params).fit(X, labels)
    assert whole.n_samples_seen_ == len(X)
    first, second = make(key, params), make(key, params)
    first.partial_fit(X[:1], labels[:1]).partial_fit(X[1:2]).partial_fit(X[2:20], labels[2:20])
    for at in range(20, 90, 7):
        second.partial_fit(X[at : at + 7], labels[at : at + 7])
    merged = first.merge(second)
    extra = np.ones((4, X.shape[1]))
    merged.partial_fit(extra, [0, None, None, 1]).unlearn(extra, [0, None, None, 1])
    sparse = make(key, {**params, "scatter": "exact"}).fit(sp.csr_matrix(X), labels)
    for other in (merged, sparse):
        np.testing.assert_allclose(other.eigenvalues_, whole.eigenvalues_, rtol=1e-9)
        np.testing.assert_allclose(np.abs((other.components_ * whole.components_).sum(axis=1)), 1.0, atol=1e-9)


@pytest.mark.parametrize(("key", "params"), WAYS)
def test_weights_and_rare_labels(key: str, params: dict[str, Any]) -> None:
    X, _, labels = partly_labelled()
    weights = np.arange(90) % 4
    often = np.repeat(np.arange(90), weights)
    values, vectors = criteria.top(definition(key, params, X[often], [labels[i] for i in often]))
    model = make(key, {**params, "unlabelled": "use"}).fit(X, labels, sample_weight=weights)
    same_eigenpairs(model, values[values > 1e-9 * values[0]], vectors, 1e-7)

    # A label of one row is no class yet.
    rare = make(key, {**params, "unlabelled": "use"}).fit(np.vstack([X, X[:1] + 5]), [*labels, 9])
    np.testing.assert_allclose(
        rare.eigenvalues_, make(key, {**params, "unlabelled": "use"}).fit(X, labels).eigenvalues_
    )


@pytest.mark.parametrize(("key", "params"), WAYS)
def test_a_part_without_a_label_merges_in_either_order(key: str, params: dict[str, Any], tmp_path: Path) -> None:
    X, _, labels = partly_labelled()
    params = {**params, "unlabelled": "use"}
    whole = make(key, params).fit(X, [*labels[:60], *[None] * 30])
    one, two = make(key, params).fit(X[:60], labels[:60]), make(key, params).fit(X[60:])
    for merged in (make(key, params).fit(X[:60], labels[:60]).merge(two), two.merge(one)):
        np.testing.assert_allclose(merged.eigenvalues_, whole.eigenvalues_, rtol=1e-9)
        merged.save(tmp_path / "m.safetensors")
        np.testing.assert_allclose(load(tmp_path / "m.safetensors").eigenvalues_, whole.eigenvalues_, rtol=1e-9)


@pytest.mark.parametrize(("key", "params"), WAYS)
@pytest.mark.parametrize("everywhere", [True, False])
def test_labels_of_few_rows_wait_alike_in_all_ways(key: str, params: dict[str, Any], everywhere: bool) -> None:
    """Two rows of a third label: the same answer by refine, and where all rows have labels by skipping."""
    X, y, labels = partly_labelled()
    given = [int(label) % 2 for label in y] if everywhere else [label and 1 for label in labels]
    given[10], given[14] = 7, 7
    params = {**params, "min_class_rows": 3, "n_components": 2}
    used = make(key, {**params, "unlabelled": "use"}).fit(X, given)
    refined = make(key, {**params, "unlabelled": "use", "scatter": "diagonal"})
    source = [(sp.csr_matrix(X), given)]
    refined.partial_fit(*source[0]).refine(source, tol=1e-9, max_passes=50)
    np.testing.assert_allclose(refined.eigenvalues_, used.eigenvalues_, rtol=1e-8)
    if everywhere:
        np.testing.assert_allclose(used.eigenvalues_, make(key, params).fit(X, given).eigenvalues_, rtol=1e-12)


@pytest.mark.parametrize(("key", "params"), WAYS)
def test_rows_with_a_label_are_not_unlearned_without_it(key: str, params: dict[str, Any]) -> None:
    X, y = rows()
    model = make(key, {**params, "unlabelled": "use"}).fit(X, y)
    with pytest.raises(errors.CannotUnlearn, match="rows without a label"):
        model.unlearn(X[:30], None)
    assert model.n_samples_seen_ == 90


@pytest.mark.parametrize(("key", "params"), WAYS)
def test_if_every_row_has_a_label_nothing_changes(key: str, params: dict[str, Any]) -> None:
    X, y = rows()
    used, skipped = (make(key, {**params, "unlabelled": u}).fit(X, y) for u in ("use", "skip"))
    np.testing.assert_allclose(used.eigenvalues_, skipped.eigenvalues_, rtol=1e-12)
    np.testing.assert_allclose(used.components_, skipped.components_, atol=1e-12)


@pytest.mark.parametrize(("key", "params"), WAYS)
def test_refined_it_is_the_exact_solution(key: str, params: dict[str, Any]) -> None:
    X, _, labels = partly_labelled()
    params = {**params, "unlabelled": "use", "n_components": 2}
    source = [(sp.csr_matrix(X[at : at + 20]), labels[at : at + 20]) for at in range(0, 90, 20)]
    refined = make(key, {**params, "scatter": "diagonal"})
    for batch in source:
        refined.partial_fit(*batch)
    refined.refine(source, tol=1e-9, max_passes=50)
    exact = make(key, params).fit(X, labels)
    assert refined.solution_ == "refined"
    np.testing.assert_allclose(refined.eigenvalues_, exact.eigenvalues_, rtol=1e-8)
    np.testing.assert_allclose(np.abs((refined.components_ * exact.components_).sum(axis=1)), 1.0, atol=1e-8)


def test_rows_before_the_first_label() -> None:
    X = rows()[0]
    values, vectors = criteria.top((1 - 0.5) * np.cov(X.T, bias=True))
    same_eigenpairs(SKM(a=0.5, unlabelled="use").fit(X), values, vectors, 1e-9)
    values, vectors = criteria.top(criteria.laplacian(X - X.mean(axis=0), np.full((90, 90), 2.0)))
    same_eigenpairs(WMV(beta=2.0, unlabelled="use").fit(X), values, vectors, 1e-9)
    with pytest.raises(errors.TargetsRequired):
        SKM(a=0.5).fit(X)


@pytest.mark.parametrize("a", [1.0, 3.0])
def test_skm_that_makes_the_scatter_small_refuses_it(a: float) -> None:
    with pytest.raises(errors.InvalidParameter, match="it needs a < 1"):
        SKM(a=a, unlabelled="use").fit(*rows())


@pytest.mark.parametrize("key", ["lda", "opls", "cca", "mmc", "plsda"])
def test_other_methods_say_why_not(key: str) -> None:
    with pytest.raises(errors.InvalidParameter, match="Only SKM with a < 1, WMV and GraphWMV"):
        make(key, {"unlabelled": "use"})
    with pytest.raises(errors.InvalidParameter, match="make their answers worse"):
        make(key).set_params(unlabelled="use")


def test_a_model_of_a_directory_learns_them(tmp_path: Path) -> None:
    X, _, labels = partly_labelled()
    blocks = [Block(X[:40]), Block(X[40:], class_targets(labels[40:]))]
    with opened(tmp_path, m=("wmv", {"unlabelled": "use"})) as directory:
        model = directory.model("m")
        for position, block in zip(put(directory, *blocks), blocks, strict=True):
            apply_event_or_rebuild(model, ParsedEvent(position, block), directory)
        published = model.publish(model.freeze())
    expected = WMV(unlabelled="use").partial_fit(X[:40]).partial_fit(X[40:], labels[40:])
    np.testing.assert_allclose(published.projection.eigenvalues, expected.eigenvalues_)
