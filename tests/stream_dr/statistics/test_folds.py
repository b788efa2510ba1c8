"""Rows in folds: their merge is the state of all rows, whatever was split, merged and unlearned."""

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from stream_dr import HSL, LDA, PCA, WMV, errors
from stream_dr.batch.block import Block
from stream_dr.batch.targets import class_targets
from stream_dr.statistics.moments.accumulator import MomentAccumulator
from stream_dr.statistics.moments.folds import FoldedAccumulator, FoldedState
from stream_dr.statistics.moments.target_sums import TargetSums
from stream_dr.statistics.protocol import pack, unpack
from stream_dr.statistics.row_hashes import row_and_target_hashes
from tests.stream_dr.statistics.hostile import Stream, assert_same, learned, stream, streams

SETTINGS = settings(max_examples=50, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
SCATTER = st.sampled_from(["exact", "diagonal"])
DECAY = st.sampled_from([1.0, 0.9])


def empty(made: Stream, scatter: str = "exact", decay: float = 1.0, state: Any = None, sets: bool = False) -> Any:
    def build(part):
        return MomentAccumulator(made.encoding, scatter, state=part, label_sets=sets)

    return FoldedAccumulator(4, build, decay, state)


def folded(made: Stream, rows: Any, sparse: bool, scatter: str, decay: float = 1.0) -> FoldedState:
    accumulator = empty(made, scatter, decay)
    accumulator.add(made.block(rows, sparse))
    return accumulator.freeze()


def assert_same_folds(state: FoldedState, made: Stream, rows: np.ndarray, scatter: str) -> None:
    """Each fold has learned exactly its rows."""
    fold = row_and_target_hashes(made.block(rows, False)) % np.uint64(4)
    for number, part in enumerate(state.parts):
        assert_same(part, learned(made, rows[fold == number], False, scatter), rtol=1e-9)


@SETTINGS
@given(streams(), st.booleans(), SCATTER, DECAY)
def test_any_batching_of_folds_is_the_whole(made, sparse, scatter, decay):
    random = np.random.default_rng(made.seed)
    accumulator = empty(made, scatter, decay)
    edges = [0, *sorted(random.integers(0, len(made.X) + 1, 4).tolist()), len(made.X)]
    for start, stop in pairwise(edges):
        accumulator.add(made.block(slice(start, stop), sparse))
    state = accumulator.freeze()
    state.check()
    assert state.rows == len(made.X)
    assert_same(state.merge_folds(), learned(made, slice(None), sparse, scatter, decay), rtol=1e-9)
    if decay == 1.0:
        assert_same_folds(state, made, np.arange(len(made.X)), scatter)


@SETTINGS
@given(streams(), SCATTER, DECAY)
def test_consecutive_folded_states_merge(made, scatter, decay):
    cut = int(np.random.default_rng(made.seed).integers(0, len(made.X) + 1))
    sparse = bool(made.seed % 2)
    a, b = folded(made, slice(0, cut), sparse, scatter, decay), folded(made, slice(cut, None), False, scatter, decay)
    state = a.merge(b)
    state.check()
    assert_same(state.merge_folds(), learned(made, slice(None), False, scatter, decay), rtol=1e-9)
    # What was merged goes on learning.
    accumulator = empty(made, scatter, decay, state)
    accumulator.add(made.block(slice(None), False))
    again = empty(made, scatter, decay)
    for _ in range(2):
        again.add(made.block(slice(None), False))
    assert_same(accumulator.freeze().merge_folds(), again.freeze().merge_folds(), rtol=1e-9)


@SETTINGS
@given(streams(), SCATTER, st.booleans())
def test_rows_are_unlearned_from_their_folds(made, scatter, sparse):
    keep = np.random.default_rng(made.seed).random(len(made.X)) < 0.5
    accumulator = empty(made, scatter)
    accumulator.add(made.block(slice(None), sparse))
    before = accumulator.freeze()
    try:
        accumulator.remove(made.block(np.flatnonzero(~keep), sparse))
    except errors.PrecisionLost:
        # The digits of a single fold decide. Nothing has changed.
        assert (accumulator.freeze().merge_folds().weight, accumulator.rows) == (
            before.merge_folds().weight,
            before.rows,
        )
        return
    state = accumulator.freeze()
    state.check()
    assert state.rows == keep.sum()
    assert_same(
        state.merge_folds(),
        learned(made, np.flatnonzero(keep), sparse, scatter),
        rtol=1e-8,
        before=before.merge_folds(),
    )


def test_unlearning_the_newest_and_the_oldest_rows_of_folds():
    made = stream(9, 60, 4, "plain", "class", "random")
    accumulator = empty(made)
    accumulator.add(made.block(slice(0, 60), False))
    accumulator.remove(made.block(slice(50, 60), False))
    accumulator.remove(made.block(slice(0, 5), False))
    state = accumulator.freeze()
    assert state.clock == state.rows == 45
    assert_same(state.merge_folds(), learned(made, slice(5, 50), False, "exact"), rtol=1e-8)


def test_no_rows_of_folds_are_unlearned_under_decay():
    made = stream(9, 60, 4, "plain", "class", "random")
    accumulator = empty(made, decay=0.9)
    accumulator.add(made.block(slice(0, 60), False))
    before = pack(accumulator.freeze())[0]
    with pytest.raises(errors.CannotUnlearn, match=r"decay=0\.9"):
        accumulator.remove(made.block(slice(50, 60), False))
    after = pack(accumulator.freeze())[0]
    assert all(np.array_equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("y", [None, class_targets([None] * 7)], ids=["none", "null"])
def test_rows_without_targets_are_unlearned_and_change_no_fold(y, sparse):
    made = stream(3, 40, 4)
    accumulator = empty(made)
    accumulator.add(made.block(slice(None), sparse))
    before = accumulator.freeze()
    unlabelled = made.block(slice(0, 7), sparse)._replace(y=y)
    accumulator.add(unlabelled)
    accumulator.remove(unlabelled)
    assert accumulator.rows_skipped == before.rows_skipped
    for after, part in zip(accumulator.freeze().parts, before.parts, strict=True):
        assert_same(after, part, rtol=1e-12)


def test_a_fold_that_has_lost_its_last_row_learns_again():
    made = stream(3, 40, 4)
    accumulator = empty(made)
    accumulator.add(made.block(slice(None), False))
    fold = row_and_target_hashes(made.block(slice(None), False)) % np.uint64(4)
    gone = np.flatnonzero(fold == fold[0])
    accumulator.remove(made.block(gone, False))
    assert (np.array([part.rows for part in accumulator.freeze().parts]) == 0).sum() == 1
    accumulator.add(made.block(gone, False))
    state = accumulator.freeze()
    assert_same(state.merge_folds(), learned(made, slice(None), False, "exact"), rtol=1e-9)

    accumulator.remove(made.block(slice(None), False))
    assert (accumulator.rows, accumulator.n_features, accumulator.remaining_labels) == (0, 0, ())
    accumulator.add(made.block(slice(None), True))
    assert_same(accumulator.freeze().merge_folds(), learned(made, slice(None), False, "exact"), rtol=1e-9)


def test_folds_are_saved_bit_for_bit():
    made = stream(5, 50, 3, "plain", "multilabel", "random")
    state = folded(made, slice(None), True, "diagonal", 0.9)
    again = unpack(FoldedState, *pack(state))
    for (name, array), (_, other) in zip(pack(state)[0].items(), pack(again)[0].items(), strict=True):
        assert np.array_equal(array, other), name
    assert again.scale == state.scale


def test_a_batch_with_an_error_changes_no_fold():
    made = stream(6, 30, 4)
    accumulator = empty(made)
    accumulator.add(made.block(slice(None), False))
    before = pack(accumulator.freeze())[0]
    bad = made.block(slice(None), False)
    with pytest.raises(errors.WidthMismatch):
        accumulator.add(bad._replace(X=csr_matrix((bad.rows, 9))))
    with pytest.raises(errors.CannotUnlearn):
        accumulator.remove(Block(np.ones((2, 4)), class_targets(["a", "new"])))
    after = pack(accumulator.freeze())[0]
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_label_sets_met_in_different_orders_are_merged():
    random = np.random.default_rng(0)
    X = random.normal(size=(80, 3))
    y = [[["a"], ["b", "a"], ["c"], ["c", "b"]][i % 4] for i in range(80)]
    whole = HSL("clique", folds=5).fit(X, y)
    first = HSL("clique", folds=5).fit(X[::-1][:30], y[::-1][:30])
    merged = first.merge(HSL("clique", folds=5).fit(X[:50], y[:50]))
    for i in range(3):
        merged.unlearn(X[i : i + 20], y[i : i + 20]).partial_fit(X[i : i + 20], y[i : i + 20])
    np.testing.assert_allclose(np.abs(merged.transform(X)), np.abs(whole.transform(X)), rtol=1e-9)
    assert (merged.fold_rows_ == whole.fold_rows_).all()


def test_class_scatter_is_kept_in_folds():
    random = np.random.default_rng(0)
    X, y = random.normal(size=(200, 4)), random.integers(0, 3, 200)
    kept, plain = WMV(folds=3).fit(X, y), WMV().fit(X, y)
    np.testing.assert_allclose(np.abs(kept.transform(X)), np.abs(plain.transform(X)), rtol=1e-8)


def test_rows_of_a_group_share_a_fold():
    random = np.random.default_rng(0)
    X, y, groups = random.normal(size=(300, 4)), random.integers(0, 3, 300), [f"g{i % 10}" for i in range(300)]
    model = LDA(folds=5).fit(X, y, groups=groups)
    assert set((model.fold_rows_ % 30).tolist()) == {0}
    by_id = LDA(folds=5, folds_by="id").fit(Block(X, y, ids=groups))
    assert (by_id.fold_rows_ == model.fold_rows_).all()
    numbers = [np.arange(300) % 10, np.arange(300.0) % 10]
    assert (
        LDA(folds=5).fit(X, y, groups=numbers[0]).fold_rows_ == LDA(folds=5).fit(X, y, groups=numbers[1]).fold_rows_
    ).all()
    # Rows without ids go by their values.
    without = LDA(folds=5, folds_by="id").fit(X, y)
    assert (without.fold_rows_ == LDA(folds=5).fit(X, y).fold_rows_).all()
    model.unlearn(X[:100], y[:100], groups=groups[:100]).partial_fit(X[:100], y[:100], groups=groups[:100])
    assert (by_id.fold_rows_ == model.fold_rows_).all()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda X: PCA(folds=1).fit(X), "folds=1; it must be 0"),
        (lambda X: PCA(folds=2.0).fit(X), "folds=2.0"),
        (lambda X: PCA(folds=-1).fit(X), "folds=-1"),
        (lambda X: PCA(folds_by="row number").fit(X), "folds_by='row number'"),
        (lambda X: PCA(folds=3).fit(X, groups=["a"]), "1 groups or ids for 20 rows"),
        (lambda X: PCA(folds=3).fit(X, groups="a" * 20), "one group a row"),
        (lambda X: PCA(folds=3).fit(X, groups=X), "one group a row"),
        (lambda X: PCA(folds=3).fit(X, groups=[*"ab" * 9, "c", None]), "group of row 19 is None"),
        (lambda X: PCA().fit(X, groups=["a"] * 20), "Set folds=5"),
        (lambda X: PCA(folds=3).fit(pa.table({"a": X[:, 0]}).to_reader(), groups=["a"] * 20), "batch by batch"),
        (
            lambda X: PCA(folds=3).fit(X).set_params(folds=4).partial_fit(X),
            "folds=4; .* with folds=3",
        ),
    ],
)
def test_errors_say_what_to_do(make, words):
    with pytest.raises(errors.InvalidParameter, match=words):
        make(np.random.default_rng(0).normal(size=(20, 3)))


def test_states_of_other_folds_are_not_merged():
    X = np.random.default_rng(0).normal(size=(20, 3))
    with pytest.raises(errors.CannotMerge):
        PCA(folds=3).fit(X).merge(PCA(folds=4).fit(X))
    a, b = PCA(folds=3).fit(X).state_, PCA(folds=4).fit(X).state_
    with pytest.raises(errors.CannotMerge, match="3 folds"):
        a.merge(b)


def test_bytes_of_folds_are_counted():
    assert LDA(folds=5).state_bytes(100, 3) == 5 * LDA().state_bytes(100, 3)


@pytest.mark.parametrize("folds", [0, 4])
def test_counts_can_be_read_while_labels_are_added(folds, monkeypatch):
    made = stream(8, 40, 3)
    accumulator = empty(made) if folds else MomentAccumulator(made.encoding)
    accumulator.add(Block(made.X[:20], class_targets(["x"] * 20)))
    seen = []
    grow = TargetSums.grow

    def read_and_grow(sums, *sizes):
        seen.append((accumulator.remaining_labels, accumulator.label_rows.tolist()))
        grow(sums, *sizes)

    monkeypatch.setattr(TargetSums, "grow", read_and_grow)
    accumulator.add(Block(made.X[20:], class_targets(["y"] * 20)))
    assert seen == [(("x",), [20])] * max(folds, 1)
    assert accumulator.remaining_labels == ("x", "y")
