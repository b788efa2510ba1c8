"""Test-then-train: only what came before counts, whatever the kind of targets, the batching and the model."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits

from stream_dr.batch.block import Block
from stream_dr.batch.table import table_from_array
from stream_dr.batch.targets import class_targets, continuous_targets, multilabel_targets
from stream_dr.datasets.generate import generate_rcv1_like
from stream_dr.errors import (
    InvalidIndex,
    InvalidParameter,
    InvalidRows,
    InvalidTargets,
    InvalidWeights,
    NotFinite,
    TargetKindMismatch,
    TargetsRequired,
    WidthMismatch,
)
from stream_dr.estimators import make
from stream_dr.evaluation.test_then_train import EvaluateSettings, ShuffledSource, evaluate


class Blocks:
    """A source in memory."""

    def __init__(self, blocks):
        self.blocks = blocks

    def events(self, after=-1, until=None):
        yield from enumerate(self.blocks)


def digits(size=100, form=np.asarray, change=lambda y: y):
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    X, y = X[order], change(y[order]).tolist()
    return Blocks([Block(form(X[i : i + size]), class_targets(y[i : i + size])) for i in range(0, len(y), size)])


@pytest.mark.test_all
@pytest.mark.parametrize("form", [np.asarray, pytest.param(sp.csr_matrix, marks=pytest.mark.test_all)])
def test_digits(form):
    models = {"lda": make("lda", {"gamma": 1.0}), "pca": make("ccipca", {"n_components": 9})}
    scores = evaluate(digits(form=form), models, EvaluateSettings(full=True))
    assert [(s.model, s.probe) for s in scores[:3]] == [("lda", "mean"), ("lda", "knn"), ("lda", "linear")]
    found = {(s.model, s.probe): s for s in scores}
    assert all(s.figures["rows"] == 1_297 for s in scores)
    assert found["lda", "mean"].figures["accuracy"] > 0.9
    assert found["lda", "linear"].figures["macro_f1"] > 0.9
    assert found["full", "knn"].figures["accuracy"] > 0.95
    assert found["lda", "knn"].components == 9
    assert found["full", "knn"].components == 64


def test_labels_of_noise_are_guessed_at_chance():
    """A batch that leaked into its own test would do better."""
    source = digits(change=lambda y: np.random.default_rng(5).integers(0, 2, len(y)))
    for s in evaluate(source, {"lda": make("lda", {"gamma": 1.0})}, EvaluateSettings(neighbours=1)):
        assert abs(s.figures["accuracy"] - 0.5) < 0.07


def test_class_means_are_those_of_all_rows_whatever_the_sample():
    settings = EvaluateSettings(probes=("mean",), reservoir=2, solve_growth=1.0)
    (one,) = evaluate(digits(), {"lda": make("lda", {"gamma": 1.0})}, settings)
    (other,) = evaluate(digits(), {"lda": make("lda", {"gamma": 1.0})}, settings._replace(reservoir=1_000))
    assert one == other
    assert one.figures["accuracy"] > 0.9


@pytest.mark.test_all
def test_several_labels_a_row():
    source = Blocks(list(generate_rcv1_like(3_000, "topics")))
    told = []
    scores = evaluate(source, {"cca": make("cca", {"gamma": 1.0, "n_components": 20})}, progress=told.append)
    assert told == [1_000, 2_000, 3_000]
    for s in scores:
        assert s.figures["rows"] == 2_000
        assert s.figures["auc"] > 0.6
        assert s.figures["micro_f1"] > 0.4


def test_new_labels_new_features_and_rows_without_targets():
    rng = np.random.default_rng(0)
    blocks = []
    for i in range(8):
        width = 5 + i
        X = sp.csr_matrix(rng.random((100, width)) * (rng.random((100, width)) < 0.5))
        labels = [f"class {c}" for c in rng.integers(0, 2 + i // 2, 100)]
        blocks.append(Block(X, class_targets([None if r % 10 == 0 else v for r, v in enumerate(labels)])))
    blocks.insert(3, Block(blocks[0].X, None))
    settings = EvaluateSettings(full=True, first=100, baseline=True)
    scores = evaluate(Blocks(blocks), {"lda": make("lda", {"gamma": 0.1})}, settings)
    assert {s.figures["rows"] for s in scores} == {8 * 90 - 180}
    shuffled = evaluate(ShuffledSource(Blocks(blocks), 0), {"lda": make("lda", {"gamma": 0.1})}, settings)
    assert scores[-1].figures["unlabelled"] == shuffled[-1].figures["unlabelled"] == 8 * 10 + 100


def test_what_cannot_be_evaluated():
    models = {"lda": make("lda", {})}
    X = np.ones((3, 2))
    with pytest.raises(TargetsRequired):
        evaluate(Blocks([Block(X, None)]), models)
    with pytest.raises(TargetKindMismatch, match="continuous"):
        evaluate(Blocks([Block(X, continuous_targets([0.1, 0.2, 0.3]))]), models)
    with pytest.raises(TargetKindMismatch, match="OPLS"):
        evaluate(Blocks([Block(X, multilabel_targets([[1], [2], []]))]), models)
    mixed = [Block(X, class_targets([1, 2, 1])), Block(X, multilabel_targets([[1], [2], []]))]
    with pytest.raises(TargetKindMismatch, match="was started with class"):
        evaluate(Blocks(mixed), models)
    with pytest.raises(InvalidParameter):
        evaluate(Blocks([]), {})
    with pytest.raises(InvalidParameter, match="tree"):
        evaluate(Blocks([]), models, EvaluateSettings(probes=("tree",)))


def test_rows_of_a_callers_own_source_are_checked():
    good = Block(np.eye(3), class_targets(["a", "b", "a"]))
    wrong = sp.csr_matrix(np.eye(3))
    wrong.indices[:] = [5, 6, 7]
    models = {"cm": make("class_means", {})}
    for error, bad in (
        (NotFinite, good._replace(X=np.full((3, 3), np.nan))),
        (InvalidIndex, good._replace(X=wrong)),
        (InvalidTargets, good._replace(y=class_targets([1, 2, 1]))),
        (InvalidTargets, good._replace(y=class_targets(["a", "b"]))),
        (InvalidWeights, good._replace(weights=-np.ones(3))),
        (InvalidWeights, good._replace(weights=np.ones(2))),
        (WidthMismatch, good._replace(X=np.eye(4)[:3])),
    ):
        with pytest.raises(error):
            evaluate(Blocks([good, bad]), models)


def test_columns_are_matched_by_name():
    X = np.random.default_rng(0).normal(size=(40, 3)) * [1.0, 5.0, 9.0]
    names = ("a", "b", "c")
    whole = Block(X, class_targets(["u", "v"] * 20), names=names)
    turned = whole._replace(X=np.ascontiguousarray(X[:, ::-1]), names=names[::-1])
    models = {"lda": make("lda", {})}
    settings = EvaluateSettings(first=1)
    assert evaluate(Blocks([whole, turned]), models, settings) == evaluate(Blocks([whole, whole]), models, settings)
    weighted = turned._replace(weights=np.ones(40))
    assert evaluate(Blocks([whole, weighted]), models, settings) == evaluate(Blocks([whole, whole]), models, settings)


def test_a_table_is_tested_as_the_same_numbers_are():
    numbers = digits()
    raw = [block._replace(X=table_from_array(block.X)) for block in numbers.blocks]
    settings = EvaluateSettings(probes=("knn",), reservoir=2_000, solve_growth=4.0)
    (one,) = evaluate(numbers, {"lda": make("lda", {"gamma": 1.0})}, settings)
    (other,) = evaluate(Blocks(raw), {"lda": make("lda", {"gamma": 1.0, "feature_map": {"map": "table"}})}, settings)
    assert other.figures["accuracy"] == pytest.approx(one.figures["accuracy"], abs=0.003)
    (small,) = evaluate(
        Blocks(raw),
        {"lda": make("lda", {"gamma": 1.0, "feature_map": {"map": "table"}})},
        settings._replace(reservoir=300),
    )
    assert 0.8 < small.figures["accuracy"] < one.figures["accuracy"]
    with pytest.raises(InvalidRows, match="numbers"):
        evaluate(Blocks(raw), {}, settings._replace(full=True))
