"""BlockBasis: what both recurrences rest on — going on from a state, memory, re-multiplication, what is refused."""

import tracemalloc
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from stream_dr import errors
from stream_dr.batch.block import Block
from stream_dr.batch.targets import class_targets
from stream_dr.statistics.protocol import pack, unpack
from stream_dr.statistics.recurrences.block_basis import BlockBasis, basis_bytes, normalise_long_columns
from stream_dr.statistics.recurrences.ccipca_state import CCIPCAAccumulator, CCIPCAState
from stream_dr.statistics.recurrences.skm_state import SKMAccumulator, SKMState
from tests.naive import recurrences

KINDS: list[tuple[Any, Any]] = [
    (lambda state=None: CCIPCAAccumulator(5, 2.0, True, state), CCIPCAState),
    (lambda state=None: CCIPCAAccumulator(5, 2.0, False, state), CCIPCAState),
    (lambda state=None: SKMAccumulator(5, 1.0, 1.0, state), SKMState),
]


def blocks(sparse: bool, batch: int = 13, n: int = 900) -> list[Block]:
    """A stream of three classes, a third of it zeros."""
    X, y = recurrences.classes(seed=7, n=n, d=10)
    X[np.random.default_rng(0).random(X.shape) < 0.3] = 0.0
    y[:200] = np.minimum(y[:200], 1)
    rows: Any = sp.csr_matrix(X) if sparse else X
    return [Block(rows[i : i + batch], class_targets(y[i : i + batch].tolist())) for i in range(0, n, batch)]


def bits(state: Any) -> dict[str, bytes]:
    """Every array of a state as bytes."""
    return {name: array.tobytes() for name, array in pack(state)[0].items()}


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize(("make", "kind"), KINDS)
def test_going_on_from_a_packed_state_is_bit_equal(make: Any, kind: type, sparse: bool) -> None:
    straight, stopped = make(), make()
    for block in blocks(sparse):
        straight.add(block)
        stopped.add(block)
        stopped = make(unpack(kind, *pack(stopped.freeze())))
    assert bits(straight.freeze()) == bits(stopped.freeze())


@pytest.mark.parametrize(("make", "kind"), KINDS)
def test_freezing_changes_no_later_result_and_is_not_changed(make: Any, kind: type) -> None:
    frozen, straight = make(), make()
    kept = []
    for block in blocks(True):
        frozen.add(block)
        straight.add(block)
        state = frozen.freeze()
        kept.append((state, bits(state)))
    assert bits(frozen.freeze()) == bits(straight.freeze())
    assert all(bits(state) == before for state, before in kept)


@pytest.mark.parametrize(("make", "kind"), KINDS)
def test_layouts_of_the_same_rows_are_bit_equal(make: Any, kind: type) -> None:
    """64-bit indices and read-only arrays, as a mapped file gives them, are the same rows."""
    plain, other = make(), make()
    for block in blocks(True):
        X = block.X.copy()
        parts = [X.data, X.indices.astype(np.int64), X.indptr.astype(np.int64)]
        for part in parts:
            part.flags.writeable = False
        wide = sp.csr_matrix(X.shape)
        wide.data, wide.indices, wide.indptr = parts
        plain.add(block)
        other.add(block._replace(X=wide))
    assert bits(plain.freeze()) == bits(other.freeze())


@pytest.mark.parametrize(("make", "kind"), KINDS)
def test_empty_batches_are_legal(make: Any, kind: type) -> None:
    accumulator = make()
    accumulator.add(Block(np.empty((0, 4)), class_targets([])))
    assert accumulator.rows == accumulator.n_features == 0
    accumulator.add(blocks(False)[0])
    before = bits(accumulator.freeze())
    accumulator.add(Block(np.empty((0, 10)), class_targets([])))
    assert bits(accumulator.freeze()) == before


@pytest.mark.parametrize(
    ("first", "then", "error"),
    [
        (False, Block(np.ones((2, 10)), class_targets([0, 0]), weights=np.ones(2)), errors.InvalidWeights),
        (False, Block(sp.csr_matrix(np.ones((2, 10))), class_targets([0, 0])), errors.InvalidRows),
        (True, Block(np.ones((2, 10)), class_targets([0, 0])), errors.InvalidRows),
    ],
)
@pytest.mark.parametrize(("make", "kind"), KINDS)
def test_a_refused_batch_changes_nothing(make: Any, kind: type, first: bool, then: Block, error: Any) -> None:
    accumulator = make()
    accumulator.add(blocks(first)[0])
    before = bits(accumulator.freeze())
    with pytest.raises(error):
        accumulator.add(then)
    assert bits(accumulator.freeze()) == before


def test_weights_are_refused_with_a_way_out() -> None:
    with pytest.raises(errors.InvalidWeights, match="PCA"):
        CCIPCAAccumulator(2, 2.0, True).add(Block(np.eye(3), weights=np.ones(3)))


@pytest.mark.parametrize("supervised", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_dense_batch_at_47236_features(supervised: bool, dtype: Any) -> None:
    """2,000 rows dense would be 756 MB; what is allocated is the basis, once more where it is re-multiplied or grown."""
    rows = [wide_rows(100, seed).astype(dtype) for seed in range(20)]
    accumulator: Any = SKMAccumulator(3, 1.0, 1.0) if supervised else CCIPCAAccumulator(5, 2.0, True)
    accumulator.add(Block(rows[0], class_targets([i % 4 for i in range(100)])))
    tracemalloc.start()
    for X in rows:
        accumulator.add(Block(X, class_targets([i % 4 for i in range(100)])))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert accumulator.rows == 2100
    assert peak < 3e6


def test_dense_rows_are_not_copied_whole() -> None:
    X = np.random.default_rng(0).normal(size=(2000, 1000)).astype(np.float32)
    accumulator = CCIPCAAccumulator(5, 2.0, True)
    accumulator.add(Block(X[:10]))
    tracemalloc.start()
    accumulator.add(Block(X))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < X.nbytes / 10


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("scale", [1e98, 1e60, 1e-60])
def test_squares_of_the_largest_values_do_not_overflow(sparse: bool, scale: float) -> None:
    """admit lets values up to 1e100 pass; eigenvalues are squares, their products fourth powers."""
    X, y = recurrences.classes()
    rows: Any = sp.csr_matrix(X * scale) if sparse else X * scale
    for accumulator, expected in (
        (CCIPCAAccumulator(3, 2.0, True), recurrences.ccipca(X * scale, 3, long=True)),
        (SKMAccumulator(2, 1.0, 1.0), recurrences.iskm(X * scale, y, 2, 1.0, not sparse, long=True)),
    ):
        accumulator.add(Block(rows[:150], class_targets(y[:150].tolist())))
        accumulator.add(Block(rows[150:], class_targets(y[150:].tolist())))
        unit, lengths = normalise_long_columns(accumulator.freeze().basis.vectors(), 1e-10)
        largest = np.abs(expected.vectors).max()
        np.testing.assert_allclose((unit * lengths).T / largest, expected.vectors / largest, atol=1e-10)


def test_a_unit_that_changes_in_mid_stream_keeps_what_was_learned() -> None:
    X = recurrences.classes()[0]
    X[200:] *= 1e52
    accumulator = CCIPCAAccumulator(1, 2.0, True)
    for at in range(0, 300, 30):
        accumulator.add(Block(X[at : at + 30]))
    expected = recurrences.ccipca(X, 1, long=True).vectors
    assert accumulator.freeze().basis.unit < 1.0
    np.testing.assert_allclose(accumulator.freeze().basis.vectors().T / 1e104, expected / 1e104, rtol=1e-9)


def test_unit_columns_leaves_short_and_zero_vectors_out() -> None:
    vectors = np.array([[3.0, 0.0, 1e-3], [4.0, 0.0, 0.0]])
    unit, lengths = normalise_long_columns(vectors, min_relative_length=1e-2)
    np.testing.assert_allclose(unit, [[0.6], [0.8]])
    np.testing.assert_allclose(lengths, [5.0])
    assert normalise_long_columns(np.zeros((3, 2)), 1e-2)[0].shape == (3, 0)


def wide_rows(n: int, seed: int) -> sp.csr_matrix:
    """Sparse rows (n, 47,236), 84 entries each."""
    random = np.random.default_rng(seed)
    columns = np.sort(random.choice(47_236, size=(n, 84), replace=True), axis=1)
    X = sp.csr_matrix((random.random(n * 84), columns.ravel(), np.arange(0, 84 * n + 1, 84)), shape=(n, 47_236))
    X.sum_duplicates()
    return X


@pytest.mark.parametrize(
    ("components", "means", "features"), [(1, 0, 0), (5, 1, 10), (7, 1, 300), (8, 4, 1), (60, 9, 40)]
)
def test_bytes_told_are_the_bytes_taken(components: int, means: int, features: int) -> None:
    basis = BlockBasis(components, means)
    basis.grow(features)
    assert basis.columns.nbytes + basis.table.nbytes == basis_bytes(features, components, means)
