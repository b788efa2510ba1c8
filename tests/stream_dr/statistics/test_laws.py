"""The laws of MomentState, on streams made to break them [mathematics §1]."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stream_dr.errors import PrecisionLost
from stream_dr.statistics.moments.accumulator import MomentAccumulator
from stream_dr.statistics.moments.state import MomentState, empty_state
from tests.naive import moments as naive
from tests.stream_dr.statistics.hostile import Stream, assert_same, learned, streams

SETTINGS = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
SCATTER = st.sampled_from(["exact", "diagonal"])
DECAY = st.sampled_from([0.5, 0.9, 0.999])


def parts_of(stream: Stream, random: np.random.Generator) -> list[np.ndarray]:
    """Rows dealt out to one to six parts, very unequal, some empty."""
    number = random.integers(1, 7)
    share = random.dirichlet(np.full(number, 0.3))
    part = random.choice(number, len(stream.X), p=share)
    return [np.flatnonzero(part == i) for i in range(number)]


def cuts_of(n: int, random: np.random.Generator) -> list[slice]:
    """Consecutive batches of random sizes."""
    ends = sorted(random.integers(0, n + 1, random.integers(0, 8)).tolist())
    edges = [0, *ends, n]
    return [slice(a, b) for a, b in pairwise(edges)]


def naive_of(stream: Stream, labels: tuple, rows=slice(None), decay: float = 1.0) -> naive.Moments:
    weights = None if stream.weights is None else stream.weights[rows]
    return naive.moments(stream.X[rows], stream.columns(labels)[rows], weights, decay)


@SETTINGS
@given(streams(), st.booleans(), SCATTER)
def test_one_batch_is_the_definition(stream, sparse, scatter):
    state = learned(stream, slice(None), sparse, scatter)
    assert_same(state, naive_of(stream, state.labels), rtol=1e-9)


@SETTINGS
@given(streams(), SCATTER)
def test_any_split_order_and_tree_of_merges_is_the_whole(stream, scatter):
    random = np.random.default_rng(stream.seed)
    whole = learned(stream, slice(None), False, scatter)
    states = [learned(stream, rows, bool(random.integers(2)), scatter) for rows in parts_of(stream, random)]
    while len(states) > 1:
        a, b = (states.pop(random.integers(len(states))) for _ in range(2))
        states.append(a.merge(b))
    assert states[0].rows == len(stream.X)
    assert_same(states[0], whole, rtol=1e-9)


@SETTINGS
@given(streams(), SCATTER, st.booleans(), DECAY)
def test_any_batching_is_the_whole_under_decay(stream, scatter, sparse, decay):
    random = np.random.default_rng(stream.seed)
    accumulator = MomentAccumulator(stream.encoding, scatter, decay)
    for rows in cuts_of(len(stream.X), random):
        accumulator.add(stream.block(rows, sparse))
    state = accumulator.freeze()
    assert_same(state, learned(stream, slice(None), sparse, scatter, decay), rtol=1e-9)
    assert_same(state, naive_of(stream, state.labels, decay=decay), rtol=1e-9)


@SETTINGS
@given(streams(), SCATTER, DECAY)
def test_consecutive_parts_merge_under_decay(stream, scatter, decay):
    random = np.random.default_rng(stream.seed)
    state = empty_state(stream.encoding, scatter, decay)
    for rows in cuts_of(len(stream.X), random):
        state = state.merge(learned(stream, rows, bool(random.integers(2)), scatter, decay))
    assert_same(state, learned(stream, slice(None), False, scatter, decay), rtol=1e-9)


def cannot_be_told(stream: Stream, left: np.ndarray, before: MomentState) -> bool:
    """Whether in the rows left some column, target or label is all but gone, and not for being 0 in each of them."""
    whole, some = naive_of(stream, before.labels), naive_of(stream, before.labels, left)
    targets = stream.columns(before.labels)[left]
    continuous = stream.kind == "continuous"
    sizes = [(m.weight, np.diagonal(m.target_scatter) if continuous else m.label_weights) for m in (whole, some)]
    scatters = [np.diagonal(m.scatter)[np.any(stream.X[left], axis=0)] for m in (whole, some)]
    there = np.any(targets, axis=0)
    pairs = [(sizes[0][0], sizes[1][0]), (sizes[0][1][there], sizes[1][1][there]), scatters]
    return any(np.any((now <= 1e-9 * then) & (np.asarray(then) > 0)) for then, now in pairs)


@SETTINGS
@given(streams(), SCATTER, st.booleans())
def test_learned_and_unlearned_is_never_learned(stream, scatter, sparse):
    random = np.random.default_rng(stream.seed)
    keep = random.random(len(stream.X)) < random.choice([0.1, 0.5, 0.9])
    accumulator = MomentAccumulator(stream.encoding, scatter)
    accumulator.add(stream.block(slice(None), sparse))
    before = accumulator.freeze()
    gone = np.flatnonzero(~keep)
    left = np.ones(len(stream.X), dtype=bool)
    for rows in np.array_split(random.permutation(gone), 3):
        left[rows] = False
        try:
            accumulator.remove(stream.block(rows, sparse))
        except PrecisionLost:
            assert cannot_be_told(stream, left, before)
            return
    after = accumulator.freeze()
    assert after.rows == keep.sum()
    assert_same(after, learned(stream, np.flatnonzero(keep), sparse, scatter), rtol=1e-9, before=before)


@SETTINGS
@given(streams(), SCATTER)
def test_sparse_rows_are_the_same_rows_dense(stream, scatter):
    assert_same(learned(stream, slice(None), True, scatter), learned(stream, slice(None), False, scatter), rtol=1e-9)


@SETTINGS
@given(streams(), SCATTER, st.booleans())
def test_the_empty_state_is_an_exact_identity(stream, scatter, sparse):
    state, empty = learned(stream, slice(None), sparse, scatter), empty_state(stream.encoding, "auto")
    for merged in (state.merge(empty), empty.merge(state)):
        for ours, theirs in zip(merged.centred(), state.centred(), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_one_class_leaves_no_cross_sum_at_all():
    random = np.random.default_rng(3)
    for sparse in (False, True):
        stream = Stream(random.normal(size=(50, 4)) + 1e9, ["a"] * 50, None, "class", 3)
        accumulator = MomentAccumulator("indicator", "exact")
        for rows in cuts_of(50, random):
            accumulator.add(stream.block(rows, sparse))
        assert np.all(accumulator.freeze().centred().cross == 0.0)


@pytest.mark.parametrize("scatter", ["exact", "diagonal"])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_class_emptied_by_unlearn_is_exactly_nothing(scatter, sparse):
    random = np.random.default_rng(4)
    stream = Stream(
        random.normal(size=(60, 5)), random.choice(["a", "b", "c"], 60).tolist(), random.random(60), "class", 4
    )
    is_b = np.array([y == "b" for y in stream.y])
    accumulator = MomentAccumulator("indicator", scatter)
    accumulator.add(stream.block(slice(None), sparse))
    accumulator.remove(stream.block(is_b, sparse))
    c = accumulator.freeze().centred()
    b = c.labels.index("b")
    assert c.label_weights[b] == 0.0
    assert c.target_mean[b] == 0.0
    assert np.all(c.cross[:, b] == 0.0)


def test_what_unlearning_costs_is_said():
    random = np.random.default_rng(5)
    stream = Stream(random.normal(size=(2000, 3)), ["a"] * 2000, None, "class", 5)
    accumulator = MomentAccumulator("indicator")
    accumulator.add(stream.block(slice(None), False))
    accumulator.remove(stream.block(slice(4, None), False))
    state = accumulator.freeze()
    assert 0.0 < state.unlearn_relative_error < 1e-11
    assert_same(state, naive_of(stream, state.labels, slice(4)), rtol=2e-12)
