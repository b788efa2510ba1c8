"""labels: a list of the labels that a model learns, in its spec."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stream_dr
from stream_dr import CCA, HSL, LDA, OPLS, PCA, ClassMeans, IncrementalSKM, InformationGain, errors
from stream_dr.directory.directory import Directory
from stream_dr.running.advance import backfill
from stream_dr.statistics.protocol import pack
from stream_dr.targets.targets import Targets, class_targets, continuous_targets, multilabel_targets
from tests.stream_dr.directory.batches import dense, opened, put

RANDOM = np.random.default_rng(8)
Y = np.array(["a", "b", "c", "d"] * 10)
X = np.abs(RANDOM.normal(size=(40, 4))) + np.eye(4)[np.arange(40) % 4] * 3
SOME = np.isin(Y, ["a", "b"])


def same_state(one: Any, other: Any) -> bool:
    """States that differ in the rows that were skipped alone."""
    (a, described), (b, others) = (pack(model.state_._replace(rows_skipped=0)) for model in (one, other))
    return described == others and all(np.array_equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize(
    "kind", [LDA, OPLS, CCA, HSL, ClassMeans, IncrementalSKM, InformationGain], ids=lambda kind: kind.__name__
)
def test_rows_of_other_labels_are_left_out_and_counted(kind: Any) -> None:
    model = kind(labels=["b", "a"]).fit(X[:20], Y[:20]).partial_fit(X[20:], Y[20:])
    alone = kind().fit(X[:20][SOME[:20]], Y[:20][SOME[:20]]).partial_fit(X[20:][SOME[20:]], Y[20:][SOME[20:]])
    assert same_state(model, alone)
    assert (model.n_samples_seen_, model.state_.rows_skipped, model.state_.labels) == (20, 20, ("a", "b"))
    if model.additive:
        model.unlearn(X[:20], Y[:20])
        assert (model.n_samples_seen_, model.state_.rows_skipped) == (10, 10)
    with pytest.raises(errors.TargetsRequired):
        kind(labels=["e"]).fit(X, Y)
    for wrong in ("ab", [], ["a", 1], [1.0], {"a": 1}):
        with pytest.raises(errors.InvalidParameter, match="labels"):
            kind(labels=wrong).fit(X, Y)
    with pytest.raises(errors.InvalidParameter):
        model.set_params(labels=None).partial_fit(X, Y)


def test_a_row_with_several_labels_needs_all_of_them() -> None:
    sets = [["a"], ["a", "c"], ["b", "a"], [], ["b"]] * 8
    model, kept = OPLS(labels=["a", "b"]).fit(X, sets), [i % 5 != 1 for i in range(40)]
    assert same_state(model, OPLS().fit(X[kept], [sets[i] for i in np.flatnonzero(kept)]))
    assert model.state_.rows_skipped == 8


def test_what_takes_no_labels_is_not_concerned() -> None:
    assert PCA(labels=["a"]).fit(X, Y).n_samples_seen_ == 40
    assert OPLS(labels=["a"]).fit(X, np.arange(40) + 0.5).n_samples_seen_ == 40


@pytest.mark.parametrize(
    "targets",
    [
        class_targets(["a", None, "c", "b", "a"]),
        class_targets([None, "c", "c"]),
        multilabel_targets([["c"], None, [], ["a", "b"], ["b", "c"], ["b"]]),
        class_targets([3, 1, 2]),
        class_targets([True, False]),
        continuous_targets([1.0, 2.0]),
    ],
    ids=str,
)
@pytest.mark.parametrize("labels", [None, ["a", "b"], ["b"], [1, 3]])
def test_targets_of_some_labels_only(targets: Targets, labels: Any) -> None:
    found, given = targets.only(labels), targets.row_labels()
    if labels is None or targets.kind == "continuous":
        assert found is targets
        return

    def kept(row: Any) -> bool:
        known = {(type(label), label) for label in labels}
        return row is not None and all((type(x), x) in known for x in (row if isinstance(row, list) else [row]))

    assert found.row_labels() == [row if kept(row) else None for row in given]
    assert all(label in labels for label in found.labels)


def test_a_model_of_some_labels_beside_one_of_all(tmp_path: Path) -> None:
    with opened(tmp_path / "D", some=("lda", {"labels": ["a", "b"]}), every=("lda", {})) as directory:
        put(directory, dense(0), dense(1), dense(2)._replace(y=class_targets(["c"] * 20)))
        some, every = directory.model("some"), directory.model("every")
        backfill(directory, [some, every], directory.position)
        assert (some.classes, every.classes) == (("a", "b"), ("a", "b", "c"))
        assert (some.rows + some.rows_skipped, every.rows_skipped, some.failure) == (60, 0, None)
        assert some.rows_skipped > 20
    with Directory(tmp_path / "D") as directory:
        assert directory.model("some").estimator.get_params()["labels"] == ["a", "b"]


def test_a_saved_one_keeps_its_list(tmp_path: Path) -> None:
    LDA(labels=["a", "b"]).fit(X, Y).save(tmp_path / "m")
    assert stream_dr.load(tmp_path / "m").partial_fit(X, Y).state_.rows_skipped == 40


def test_refine_passes_over_the_rows_that_were_left_out() -> None:
    exact, wide = (LDA(labels=["a", "b", "c"], scatter=kept).fit(X, Y) for kept in ("exact", "diagonal"))
    wide.refine([(X, Y)], 1e-10, 30)
    np.testing.assert_allclose(np.abs(wide.transform(X)), np.abs(exact.transform(X)), atol=1e-6)
