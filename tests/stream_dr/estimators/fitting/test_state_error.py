"""held_out_error against the predictions of the same regression, row by row."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from stream_dr import CCA, HSL, LDA, OPLS, PCA, PLSDA, errors, random_fourier, table
from stream_dr.estimators import make

rng = np.random.default_rng(11)
N, D = 90, 6
X = rng.normal(size=(N, D)) * np.linspace(0.5, 3.0, D) + np.arange(N)[:, None] % 3
CLASSES = [["a", "b", "c"][i % 3] for i in range(N)]
SETS = [sorted({"abcd"[i % 4], "abcd"[(i * i) % 4]}) if i % 7 else [] for i in range(N)]
NUMBERS = X[:, :2] @ [[1.0, 0.5], [0.2, -1.0]] + rng.normal(size=(N, 2))
ROWS = {
    "plain": X,
    "offset": X + 1e6,
    "rank-deficient": np.hstack([X, X[:, :2]]),
    "constant column": np.hstack([X, np.full((N, 1), 1e5 / 3)]),
}

WAYS: list[tuple[str, dict[str, Any], str]] = [
    ("lda", {"gamma": 0.5}, "class"),
    ("lda", {"n_components": 1, "shrinkage": 0.2}, "class"),
    ("lda", {"standardize": True, "priors": {"a": 0.5, "b": 0.3, "c": 0.2}}, "class"),
    ("opls", {"gamma": 1.0}, "continuous"),
    ("opls", {"scaling": "source"}, "multilabel"),
    ("cca", {"n_components": 1}, "continuous"),
    ("cca", {}, "class"),
    ("hsl", {"gamma": 0.1}, "multilabel"),
    ("plsda", {"n_components": 2}, "continuous"),
    ("plsda", {"n_components": 1, "standardize": True}, "class"),
]


def targets(kind: str) -> Any:
    return {"class": CLASSES, "multilabel": SETS, "continuous": NUMBERS}[kind]


def encoded(y: Any, labels: list[str], key: str) -> np.ndarray:
    """Targets (rows, k) as numbers, written out row by row."""
    if not labels:
        return np.asarray(y, dtype=float)
    sets = [[row] if isinstance(row, str) else list(row) for row in y]
    out = np.array([[float(label in row) for label in labels] for row in sets])
    return out / np.sqrt(np.maximum(out.sum(axis=1, keepdims=True), 1.0)) if key == "hsl" else out


def by_rows(
    model: Any, key: str, train: Any, test: Any, labels: list[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Squared errors of the regression on the model's components, their scale, and the targets' own sums."""
    (A, a, u), (B, b, w) = train, test
    learned = encoded(a, labels, key)
    mean, target_mean = (u @ A) / u.sum(), (u @ learned) / u.sum()
    # The ridge of a two-stage method enters as further rows, in the units of the scaled features.
    scale = np.sqrt((u @ (A - mean) ** 2) / u.sum()) if model.standardize else np.ones(A.shape[1])
    scale = np.where(scale > 0, scale, 1.0)
    V = model.components_.T * scale[:, None]
    scaled = (A - mean) / scale
    ridge = 0.0
    share = 1.0
    if key != "plsda":
        share, ridge = model.ridge_terms(model.moments(model.state_))
    gram = share * (V.T @ scaled.T * u) @ (scaled @ V) + ridge * V.T @ V
    W = V @ np.linalg.solve(gram, (scaled @ V).T * u @ (learned - target_mean)) / scale[:, None]
    given = encoded(b, labels, key)
    residual = given - target_mean - (B - mean) @ W
    own = given - (w @ given) / w.sum() if len(w) else given
    deviations = np.sqrt((w[:, None] * (B - (w @ B) / w.sum()) ** 2).sum(axis=0)) if len(w) else np.zeros(B.shape[1])
    bias = np.abs(W).T @ deviations
    cyy = (w[:, None] * own**2).sum(axis=0)
    return (w[:, None] * residual**2).sum(axis=0), cyy + len(w) * residual.mean(axis=0) ** 2 + 1e-3 * bias**2, cyy


def compare(key: str, params: Any, train: Any, test: Any, kind: str) -> None:
    model, other = make(key, params), make(key, {})
    model.fit(train[0], train[1], sample_weight=train[2])
    other.fit(test[0], test[1], sample_weight=test[2])
    error = model.held_out_error(other)
    flat = [label for rows in (train[1], test[1]) for row in rows for label in ([row] if isinstance(row, str) else row)]
    labels = sorted(set(flat)) if kind != "continuous" else []
    sse, scale, cyy = by_rows(model, key, train, test, labels)
    assert error.weight == pytest.approx(test[2].sum())
    assert (np.abs(error.sse - sse) <= 1e-9 * scale).all(), (error.sse, sse)
    varies = cyy > 1e-9 * scale
    tolerance = 1e-8 * scale[varies] / cyy[varies]
    assert (np.abs(error.r2[varies] - (1 - sse[varies] / cyy[varies])) <= tolerance).all()


@pytest.mark.parametrize("way", [("lda", {"gamma": 1.0}), ("opls", {}), ("plsda", {})])
def test_labels_are_matched_by_name(way: Any) -> None:
    key, params = way
    first = [i for i in range(N) if CLASSES[i] != "c"]
    second = [i for i in range(N) if CLASSES[i] != "a"]
    ones = np.ones(N)
    for train, test in ((first, second), (second, first)):
        given = [[CLASSES[i] for i in rows] for rows in (train, test)]
        compare(key, params, (X[train], given[0], ones[train]), (X[test], given[1], ones[test]), "class")


@pytest.mark.parametrize("key", ["lda", "opls", "cca", "hsl", "plsda"])
def test_merged_decayed_and_sparse_states(key: str) -> None:
    kind = "class" if key in ("lda", "hsl") else "continuous"
    y = targets(kind)
    whole = make(key, {}).fit(X[:60], y[:60])
    parts = make(key, {}).fit(X[:20], y[:20]).merge(make(key, {}).fit(X[20:60], y[20:60]))
    held = make(key, {}).fit(X[60:], y[60:])
    sparse = make(key, {"scatter": "exact"}).fit(sp.csr_matrix(X[60:]), y[60:])
    expected = whole.held_out_error(held)
    for model, other in ((parts, held), (whole, sparse)):
        np.testing.assert_allclose(model.held_out_error(other).sse, expected.sse, rtol=1e-9)

    decayed = make(key, {"decay": 0.97}).partial_fit(X[60:], y[60:])
    weights = 0.97 ** np.arange(29, -1, -1)
    weighed = make(key, {}).fit(X[60:], y[60:], sample_weight=weights)
    np.testing.assert_allclose(whole.held_out_error(decayed).sse, whole.held_out_error(weighed).sse, rtol=1e-9)
    assert whole.held_out_error(decayed).weight == pytest.approx(weights.sum())


def test_no_rows_one_row_and_a_map() -> None:
    model = LDA(gamma=1.0).fit(X, CLASSES)
    empty = model.held_out_error(LDA().partial_fit(X[:0], []))
    assert empty.weight == 0.0
    assert not empty.sse.any()
    one = model.held_out_error(LDA().fit(X[:1], CLASSES[:1]))
    assert one.weight == 1.0
    assert np.isnan(one.r2).all()
    alike = model.held_out_error(LDA().fit(X[:20], ["a"] * 20, sample_weight=np.full(20, 0.3)))
    assert np.isnan(alike.r2).all()
    mapped = {"feature_map": random_fourier(50, gamma=0.01), "random_state": 3}
    error = OPLS(**mapped).fit(X[:60], NUMBERS[:60]).held_out_error(OPLS(**mapped).fit(X[60:], NUMBERS[60:]))
    assert (error.sse > 0).all()


def test_what_cannot_be_compared() -> None:
    model = LDA(gamma=1.0).fit(X, CLASSES)
    diagonal = LDA(scatter="diagonal").fit(X, CLASSES)
    for one, other, said in (
        (model, PCA().fit(X), "must be a LDA"),
        (model, diagonal, "scatter='exact'"),
        (diagonal, model, "scatter='exact'"),
        (model, LDA().fit(X[:, :3], CLASSES), "3 features"),
        (OPLS().fit(X, CLASSES), OPLS().fit(X, NUMBERS), "of kind continuous"),
        (OPLS().fit(X, NUMBERS), OPLS().fit(X, NUMBERS[:, 0]), "1 targets"),
        (HSL("star").fit(X, SETS), HSL("star").fit(X, SETS), "'zhou'"),
        (LDA(feature_map=table()).fit(X, CLASSES), LDA(feature_map=table()).fit(X, CLASSES), "depends on the rows"),
    ):
        with pytest.raises(errors.InvalidParameter, match=said):
            one.held_out_error(other)
    rows = pd.DataFrame(X, columns=list("abcdef"))
    weightless = OPLS().partial_fit(X, NUMBERS[:, 0], sample_weight=np.zeros(N))
    assert OPLS().fit(X, NUMBERS).held_out_error(weightless).sse.tolist() == [0.0, 0.0]
    fourier = [OPLS(feature_map=random_fourier(20, gamma=0.01, seed=seed)).fit(X, NUMBERS) for seed in (1, 2)]
    for one, other, said in (
        (*fourier, "feature_map="),
        (OPLS().fit(rows, NUMBERS), OPLS().fit(rows[list("fedcba")], NUMBERS), "in this order"),
        (HSL().fit(X, SETS), HSL("star").fit(X, SETS), "encodes targets"),
        (OPLS().fit(X, NUMBERS), OPLS(), "that has learned rows"),
    ):
        with pytest.raises(errors.InvalidParameter, match=said):
            one.held_out_error(other)
    with pytest.raises(errors.InvalidTargets, match="labels are int"):
        model.held_out_error(LDA().fit(X, np.arange(N) % 3))
    with pytest.raises(errors.NotFitted):
        CCA().held_out_error(CCA().fit(X, NUMBERS))
    assert PLSDA().fit(X, NUMBERS).held_out_error(PLSDA().fit(X, NUMBERS)).r2.max() < 1
