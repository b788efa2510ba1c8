"""Scores against river's metrics, row by row, and scikit-learn's area under the curve."""

import numpy as np
import pytest
from river import metrics
from sklearn.metrics import roc_auc_score

from stream_dr.evaluation.scores import ClassScores, LabelScores, standard_error, weakness


def test_class_scores_are_rivers():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 4, 500)
    predicted = np.where(rng.random(500) < 0.6, truth, rng.integers(0, 6, 500))
    peers = {"accuracy": metrics.Accuracy(), "micro_f1": metrics.MicroF1(), "macro_f1": metrics.MacroF1()}
    for a, b in zip(truth.tolist(), predicted.tolist(), strict=True):
        for peer in peers.values():
            peer.update(a, b)
    scores = ClassScores()
    for at, labels in ((0, 6), (100, 6), (350, 9)):
        stop = {0: 100, 100: 350, 350: 500}[at]
        scores.add(truth[at:stop], predicted[at:stop], labels)
    found = scores.scores_by_name()
    assert found["rows"] == 500
    assert found["most_frequent"] == np.bincount(truth).max() / 500
    for name, peer in peers.items():
        assert found[name] == pytest.approx(peer.get(), abs=1e-12)


def test_label_scores_are_rivers_and_auc_is_scikit_learns():
    rng = np.random.default_rng(1)
    truth = rng.random((400, 5)) < [0.5, 0.3, 0.1, 0.02, 0.4]
    scores = np.clip(rng.normal(0, 0.4, truth.shape) + 0.4 * truth - 0.2, -1, 1)
    predicted = scores > 0
    exact = metrics.multioutput.ExactMatch()
    micro, macro = metrics.multioutput.MicroAverage(metrics.F1()), metrics.multioutput.MacroAverage(metrics.F1())
    for a, b in zip(truth.tolist(), predicted.tolist(), strict=True):
        for peer in (exact, micro, macro):
            peer.update(dict(enumerate(a)), dict(enumerate(b)))
    counted = LabelScores()
    for part in np.array_split(np.arange(400), 7):
        counted.add(truth[part], predicted[part], scores[part])
    found = counted.scores_by_name()
    assert found["accuracy"] == pytest.approx(exact.get())
    assert found["micro_f1"] == pytest.approx(micro.get())
    assert found["macro_f1"] == pytest.approx(macro.get())
    assert found["auc"] == pytest.approx(roc_auc_score(truth, scores, average="macro"), abs=2e-3)


def test_labels_that_come_late_were_absent_before():
    whole, late = LabelScores(), LabelScores()
    rng = np.random.default_rng(2)
    truth, scores = rng.random((60, 3)) < 0.4, rng.uniform(-1, 1, (60, 3))
    truth[:30, 2], scores[:30, 2] = False, -1.0
    whole.add(truth, scores > 0, scores)
    late.add(truth[:30, :2], scores[:30, :2] > 0, scores[:30, :2])
    late.add(truth[30:], scores[30:] > 0, scores[30:])
    assert whole.scores_by_name() == late.scores_by_name()


def test_nothing_counted_is_not_a_number():
    assert all(np.isnan(v) for name, v in ClassScores().scores_by_name().items() if name != "rows")
    assert all(np.isnan(v) for name, v in LabelScores().scores_by_name().items() if name != "rows")


def test_an_accuracy_must_be_two_standard_errors_above_the_most_frequent_label():
    assert standard_error(0.9, 100) == pytest.approx(0.03)
    assert weakness(0.9, 100, 0.83) == ""
    assert weakness(0.9, 100, 0.85) == "no better than the most frequent label (85.0 %)"
    assert weakness(0.5, 10_000, 0.624) == "no better than the most frequent label (62.4 %)"
    assert (weakness(1.0, 50, 0.98), weakness(1.0, 50, 1.0) == "") == ("", False)  # one label alone is no success
