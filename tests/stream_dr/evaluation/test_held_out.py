"""score_before_after_refine: what the same rows score when they are split, learned and refined by hand."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics import r2_score

import stream_dr
from stream_dr.batch.parsing import parse_targets
from stream_dr.batch.rows import RepeatableBatches
from stream_dr.evaluation.scores import score_before_after_refine

RNG = np.random.default_rng(7)
X = sp.csr_matrix(4 * RNG.normal(size=(300, 3)) @ RNG.normal(size=(3, 40)) + RNG.normal(size=(300, 40)))
TENTH = np.random.default_rng(0).random(300) < 0.1


def source(y: list[object], kind: str) -> RepeatableBatches:
    """Batches of 7 rows, so that held-out rows lie anywhere in them."""
    parts = (slice(i, i + 7) for i in range(0, 300, 7))
    return RepeatableBatches(
        [stream_dr.Block(X[s], parse_targets(y[s], X[s].shape[0], (kind,), kind, None)) for s in parts]
    )


@pytest.mark.parametrize("kind", ["class", "continuous", "multilabel"])
def test_scores_are_those_of_a_split_by_hand(kind: str) -> None:
    value = X[:, :2].toarray() + RNG.normal(size=(300, 2))
    y: list[object] = value.tolist()
    if kind == "class":
        y = np.where(value[:, 0] > value[:, 1], "a", "b").tolist()
    elif kind == "multilabel":
        y = [[name for name, there in zip("ab", row > 0, strict=True) if there] for row in value]
    make = stream_dr.LDA if kind == "class" else stream_dr.OPLS
    params = {"gamma": 1.0, "scatter": "diagonal"}

    def score(estimator: stream_dr.LDA | stream_dr.OPLS) -> float:
        asked = [label for label, held in zip(y, TENTH, strict=True) if held]
        if kind == "continuous":
            return float(r2_score(value[TENTH], estimator.predict(X[TENTH])))
        return float(estimator.score(X[TENTH], asked))

    rest = [label for label, held in zip(y, TENTH, strict=True) if not held]
    expected = make(**params).fit(X[~TENTH], rest)
    diagonal = score(expected)
    expected.refine((X[~TENTH], rest), tol=1e-6, max_passes=50)
    found = score_before_after_refine(make(**params), source(y, kind), tol=1e-6, max_passes=50)
    np.testing.assert_allclose(found, [diagonal, score(expected)], atol=1e-6)
    assert found[0] != found[1]


def test_without_a_held_out_row_there_is_no_score() -> None:
    y = ["a", "b"]
    few = RepeatableBatches([stream_dr.Block(X[:2], parse_targets(y, 2, ("class",), "auto", None))])
    assert np.isnan(score_before_after_refine(stream_dr.LDA(gamma=1.0, scatter="diagonal"), few, 1e-3, 5)).all()


def test_labels_that_take_turns_are_all_held_out() -> None:
    labels = [f"c{row % 10}" for row in range(300)]
    means = 9 * np.eye(10, 40)[np.arange(300) % 10]
    rows = sp.csr_matrix(means + RNG.normal(size=(300, 40)))
    batches = RepeatableBatches([stream_dr.Block(rows, parse_targets(labels, 300, ("class",), "class", None))])
    before, _ = score_before_after_refine(stream_dr.LDA(gamma=1.0, scatter="diagonal"), batches, 1e-3, 5)
    assert before == 1.0
