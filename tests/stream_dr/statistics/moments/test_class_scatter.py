"""ClassScatter: each class's scatter about its own mean, dense and sparse, merged and unlearned, at offset 1e9."""

import numpy as np
import pytest
import scipy.sparse as sp

from stream_dr.batch.block import Block
from stream_dr.batch.targets import class_targets
from stream_dr.statistics.moments.accumulator import MomentAccumulator
from tests.naive import moments as naive

RANDOM = np.random.default_rng(31)
X = RANDOM.normal(size=(120, 4)) + 1e9
Y = RANDOM.choice(["a", "b", "c"], 120)
W = RANDOM.random(120)


def check(state, rows, atol):
    for j, label in enumerate(state.labels):
        own = rows[Y[rows] == label]
        expected = naive.moments(X[own], np.zeros((len(own), 0)), W[own])
        assert state.class_scatter.weights[j] == pytest.approx(expected.weight)
        np.testing.assert_allclose(state.class_scatter.scatter[j], expected.scatter, atol=atol)


@pytest.mark.parametrize("sparse", [False, True])
def test_learned_merged_and_unlearned(sparse):
    def block(rows):
        return Block(sp.csr_matrix(X[rows]) if sparse else X[rows], class_targets(Y[rows]), W[rows])

    states = []
    for rows in np.array_split(RANDOM.permutation(120), 4):
        accumulator = MomentAccumulator("indicator", class_scatter=True)
        accumulator.add(block(rows[:5]))
        accumulator.add(block(rows[5:]))
        states.append(accumulator.freeze())
    state = states[0].merge(states[3]).merge(states[2].merge(states[1]))
    check(state, np.arange(120), 1e-12)
    accumulator = MomentAccumulator("indicator", state=state, class_scatter=True)
    accumulator.remove(block(np.arange(40, 120)))
    check(accumulator.freeze(), np.arange(40), 1e-11)
