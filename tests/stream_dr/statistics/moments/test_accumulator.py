"""MomentAccumulator: what the first batch decides, growth, bad input, copies and continuation."""

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp

from stream_dr import HSL, LDA, WMV, errors
from stream_dr.batch.block import Block
from stream_dr.batch.targets import class_targets, continuous_targets, multilabel_targets
from stream_dr.statistics.mapped import MappedAccumulator
from stream_dr.statistics.moments.accumulator import MomentAccumulator
from stream_dr.statistics.moments.state import MomentState
from stream_dr.statistics.protocol import pack, unpack
from tests.naive import moments as naive
from tests.stream_dr.statistics.hostile import assert_same, stream
from tests.support.pairwise import pairwise

RANDOM = np.random.default_rng(11)
X = RANDOM.normal(size=(12, 3))
Y = ["a", "b", "c"] * 4


def block(rows=X, labels=Y, weights=None, **more):
    return Block(rows, class_targets(labels), weights, **more)


def bits(state):
    """All of a state, as bytes."""
    arrays, description = pack(state)
    return {name: a.tobytes() for name, a in arrays.items()}, description


def refused(error, accumulator, given, action="add"):
    """The action raises error and leaves accumulator as it was."""
    before = bits(accumulator.freeze())
    with pytest.raises(error) as caught:
        getattr(accumulator, action)(given)
    assert bits(accumulator.freeze()) == before
    return str(caught.value)


def started(scatter="auto", rows=X, **kept):
    accumulator = MomentAccumulator("indicator", scatter, **kept)
    accumulator.add(block(rows))
    return accumulator


@pytest.mark.filterwarnings("ignore::stream_dr.errors.OnlyDiagonal")
@pytest.mark.parametrize(
    ("rows", "stated", "scatter"),
    [
        (np.zeros((2, 4096)), True, "exact"),
        (np.zeros((2, 4097)), True, "diagonal"),
        (sp.csr_matrix((2, 4096)), True, "exact"),
        (sp.csr_matrix((2, 4097)), True, "diagonal"),
        (sp.csr_matrix((2, 7)), False, "diagonal"),
    ],
)
def test_the_first_batch_decides_the_scatter(rows, stated, scatter):
    accumulator = MomentAccumulator("none")
    accumulator.add(Block(rows[:0], width_stated=stated))
    assert accumulator.freeze().scatter == "auto"
    accumulator.add(Block(rows, width_stated=stated))
    assert accumulator.freeze().scatter == scatter


def test_exact_scatter_grows_with_new_features_up_to_4096():
    accumulator = MomentAccumulator("none", "exact")
    rows = sp.random(6, 40, 0.4, "csr", random_state=1)
    accumulator.add(Block(rows[:3, :10].tocsr()))
    accumulator.add(Block(rows[3:]))
    together = np.vstack([np.pad(rows[:3, :10].toarray(), ((0, 0), (0, 30))), rows[3:].toarray()])
    np.testing.assert_allclose(
        accumulator.freeze().centred().scatter, naive.moments(together, np.zeros((6, 0))).scatter, atol=1e-14
    )
    message = refused(errors.TooManyFeatures, accumulator, Block(sp.csr_matrix((1, 4097))))
    assert 'scatter="diagonal"' in message


def test_sparse_features_and_labels_grow_in_mid_stream():
    accumulator = MomentAccumulator("indicator", "diagonal")
    everything, labels, width = [], [], 0
    for i in range(12):
        width += int(RANDOM.integers(0, 9))
        rows = sp.random(5, width, 0.5, "csr", random_state=i)
        own = [f"label {j}" for j in RANDOM.integers(0, 3 * i + 1, 5)]
        accumulator.add(Block(rows, class_targets(own), width_stated=False))
        everything.append(rows.toarray())
        labels += own
    together = np.vstack([np.pad(rows, ((0, 0), (0, width - rows.shape[1]))) for rows in everything])
    state = accumulator.freeze()
    assert state.n_features == width
    assert_same(state, naive.moments(together, naive.indicator(labels, list(state.labels))))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("scatter", ["exact", "diagonal"])
def test_float32_rows_are_cast_up_before_centring(scatter, sparse):
    rows = (RANDOM.normal(size=(200, 4)) + 1000).astype(np.float32)
    accumulator = MomentAccumulator("none", scatter)
    accumulator.add(Block(sp.csr_matrix(rows) if sparse else rows))
    expected = naive.moments(rows.astype(np.float64), np.zeros((200, 0)))
    np.testing.assert_allclose(accumulator.freeze().centred().diagonal, np.diagonal(expected.scatter), rtol=1e-12)


@pytest.mark.parametrize("share", [0.02, 0.5])
def test_wide_sparse_rows_of_exact_scatter(share):
    rows = sp.random(300, 90, share, "csr", random_state=2)
    rows.data += 1e6
    weights = RANDOM.random(300)
    values = RANDOM.normal(size=(300, 2))
    accumulator = MomentAccumulator("indicator", "exact")
    for start in range(0, 300, 100):
        own = slice(start, start + 100)
        accumulator.add(Block(rows[own], continuous_targets(values[own]), weights[own]))
    assert_same(accumulator.freeze(), naive.moments(rows.toarray(), values, weights))


def test_rows_without_targets_are_skipped_and_counted():
    accumulator = MomentAccumulator("indicator")
    accumulator.add(Block(X, class_targets(["a", None, "b"] * 4), np.arange(12.0)))
    accumulator.add(Block(X[:5]))
    state = accumulator.freeze()
    assert (state.rows, state.rows_skipped) == (8, 9)
    keep = np.arange(12) % 3 != 1
    labelled = naive.indicator(["a", "b"] * 4, ["a", "b"])
    assert_same(state, naive.moments(X[keep], labelled, np.arange(12.0)[keep]))
    unsupervised = MomentAccumulator("none")
    unsupervised.add(Block(X))
    assert (unsupervised.rows, unsupervised.rows_skipped) == (12, 0)


def test_rows_without_labels_count_in_the_mean_only():
    sets = [["a"], [], ["a", "b"]] * 4
    for encoding in ("indicator", "zhou"):
        accumulator = MomentAccumulator(encoding)
        accumulator.add(Block(X, multilabel_targets(sets)))
        state = accumulator.freeze()
        expected = naive.indicator(sets, list(state.labels), zhou=encoding == "zhou")
        assert_same(state, naive.moments(X, expected))
        assert state.rows == 12
        np.testing.assert_array_equal(state.centred().label_weights, [8.0, 4.0])


def test_a_batch_that_does_not_fit_the_sums_changes_nothing():
    accumulator = started()
    refused(errors.WidthMismatch, accumulator, block(sp.csr_matrix(np.ones((12, 4)))))
    continuous = MomentAccumulator("indicator")
    continuous.add(Block(X, continuous_targets(X[:, :2])))
    refused(errors.InvalidTargets, continuous, Block(X, continuous_targets(X)))


def test_bad_input_is_named_where_it_comes_in_and_changes_nothing():
    model = LDA().fit(X, Y)
    before = bits(model.state_)

    def said(error, rows=X, labels=Y, weights=None, learn=model.partial_fit):
        with pytest.raises(error) as caught:
            learn(rows, labels, sample_weight=weights)
        assert bits(model.state_) == before
        return str(caught.value)

    bad = X.copy()
    bad[4, 1] = np.nan
    assert "row 4, column 1" in said(errors.NotFinite, bad)
    said(errors.NotFinite, bad, learn=model.unlearn)
    bad = sp.csr_matrix(X)
    bad.data[5] = np.inf
    assert "row 1, column 2" in said(errors.NotFinite, bad)
    said(errors.InvalidWeights, weights=-np.ones(12))
    said(errors.InvalidWeights, weights=np.ones(11))
    said(errors.InvalidTargets, labels=Y[:11])
    said(errors.InvalidTargets, labels=[1, 2, 3] * 4)
    said(errors.TargetKindMismatch, labels=[["a"]] * 12)
    said(errors.TargetKindMismatch, labels=X, learn=HSL().partial_fit)
    said(errors.EmptyInput, np.zeros((12, 0)), learn=LDA().partial_fit)
    assert "OPLS, CCA or HSL" in said(errors.TargetKindMismatch, labels=[["a"]] * 12, learn=WMV().partial_fit)


def test_what_a_map_makes_of_rows_is_checked():
    spec = {"map": "hashing", "n_features": 1, "alternate_sign": False}
    mapped = MappedAccumulator(spec, lambda state: MomentAccumulator("none", state=state), None)
    with pytest.raises(errors.NotFinite):
        mapped.add(Block(np.full((12, 4), 9e99)))


def test_unlearning_what_was_not_learned_is_refused():
    for rows in (X, sp.csr_matrix(X)):
        for scatter in ("exact", "diagonal"):
            accumulator = started(scatter, rows)
            refused(errors.CannotUnlearn, accumulator, block(labels=["z"] * 12), "remove")
            refused(errors.CannotUnlearn, accumulator, block(rows[:5], ["a"] * 5), "remove")
            refused(errors.CannotUnlearn, accumulator, block(rows[:4], ["a"] * 4, np.full(4, 2.0)), "remove")
            refused(errors.CannotUnlearn, accumulator, Block(X, class_targets([None] * 12)), "remove")
            accumulator.remove(block(rows))
            assert (accumulator.rows, accumulator.n_features) == (0, 0)
            refused(errors.CannotUnlearn, accumulator, block(rows[:1], Y[:1]), "remove")
    rows = sp.csr_matrix(np.diag([1.0, 2.0, 0.0]))
    accumulator = MomentAccumulator("indicator", "diagonal")
    accumulator.add(block(rows, ["a", "a", "a"]))
    message = refused(errors.CannotUnlearn, accumulator, block(rows[[0, 0]], ["a", "a"]), "remove")
    assert "feature 0" in message


def test_states_that_do_not_fit_are_not_merged():
    def state(rows=X, labels=Y, encoding="indicator", **spec):
        accumulator = MomentAccumulator(encoding, **spec)
        accumulator.add(Block(rows, class_targets(labels) if isinstance(labels, list) else labels))
        return accumulator.freeze()

    a = state()
    for b in (
        state(X[:, :2]),
        state(sp.csr_matrix(np.ones((12, 5)))),
        state(encoding="zhou"),
        state(decay=0.5),
        state(scatter="diagonal"),
        state(labels=[1, 2, 3] * 4),
        state(labels=multilabel_targets([["a"]] * 12)),
        state(labels=continuous_targets(X)),
        state(class_scatter=True),
        state(label_sets=True),
    ):
        before = bits(a), bits(b)
        with pytest.raises(errors.CannotMerge):
            a.merge(b)
        assert (bits(a), bits(b)) == before
    with pytest.raises(errors.CannotMerge):
        MomentAccumulator("zhou", state=a)
    with pytest.raises(errors.InvalidParameter):
        MomentAccumulator("other")
    with pytest.raises(errors.InvalidParameter):
        MomentAccumulator("none", "some")
    with pytest.raises(errors.InvalidParameter):
        MomentAccumulator("none", decay=0.0)


@pytest.mark.parametrize(
    ("sparse", "scatter", "decay", "kept"),
    pairwise(
        product([False, True], ["exact", "diagonal"], [1.0, 0.8], [{}, {"label_sets": True}, {"class_scatter": True}])
    ),
)
def test_a_restored_state_goes_on_bit_equal(sparse, scatter, decay, kept):
    made = stream(8, 90, 5, "mostly zero", "class", "random")
    whole = MomentAccumulator("indicator", scatter, decay, **kept)
    restored = MomentAccumulator("indicator", scatter, decay, **kept)
    for start in range(0, 90, 30):
        own = made.block(slice(start, start + 30), sparse)
        whole.add(own)
        restored.add(own)
        arrays, description = pack(restored.freeze())
        state = unpack(MomentState, arrays, description)
        restored = MomentAccumulator("indicator", "auto", decay, state, **kept)
    assert bits(whole.freeze()) == bits(restored.freeze())


def test_a_frozen_state_is_not_changed_by_later_batches():
    for rows in (X, sp.csr_matrix(X)):
        for scatter in ("exact", "diagonal"):
            accumulator = started(scatter, rows, class_scatter=True, label_sets=True)
            state = accumulator.freeze()
            before = bits(state)
            accumulator.add(block(rows))
            accumulator.remove(block(rows[:2], Y[:2]))
            assert bits(state) == before


def test_batches_are_read_where_they_are(monkeypatch):
    from stream_dr.statistics.moments import accumulator as moments

    seen = []
    monkeypatch.setattr(moments.SparseSums, "add_total_weight", lambda self, X, *rest: seen.append(X))
    monkeypatch.setattr(moments.CentredSums, "add_rows", lambda self, X, *rest: seen.append(X))
    rows = sp.csr_matrix(X)
    MomentAccumulator("none", "diagonal").add(Block(rows))
    MomentAccumulator("none", "diagonal").add(Block(X))
    assert np.shares_memory(seen[0].data, rows.data)
    assert np.shares_memory(seen[0].indices, rows.indices)
    assert np.shares_memory(seen[1], X)


def test_nothing_of_the_size_of_the_stream_is_kept():
    sizes = []
    for n in (100, 1000):
        accumulator = MomentAccumulator("indicator", label_sets=True)
        for start in range(0, n, 100):
            made = stream(start, 100, 6, "plain", "multilabel")
            accumulator.add(made.block(slice(None), True))
        sizes.append(sum(a.nbytes for a in pack(accumulator.freeze())[0].values()))
    assert sizes[1] <= 2 * sizes[0]
