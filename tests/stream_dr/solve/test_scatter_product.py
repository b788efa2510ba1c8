"""The scatter product against centred rows written out."""

import numpy as np
import pytest
import scipy.sparse as sp

from stream_dr.batch.block import Block
from stream_dr.solve.subspace import ScatterProduct


def product(blocks, mean, P, scale=None, weights=None):
    total = ScatterProduct(mean, P, scale)
    for i, X in enumerate(blocks):
        total.add(Block(X), None if weights is None else weights[i])
    return total.result()


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dense_and_sparse_equal_the_definition(offset, dtype):
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((90, 12)) * (rng.random((90, 12)) < 0.5) + offset).astype(dtype)
    P, w, scale = rng.standard_normal((12, 3)), rng.random(90), rng.random(12) + 0.5
    rows = X.astype(float)
    mean = w @ rows / w.sum()
    C = ((rows - mean) * scale).T @ ((rows - mean) * scale * w[:, None])
    parts, weights = np.split(X, [40, 41]), np.split(w, [40, 41])
    expected = C @ P
    bound = 1e-12 if offset == 0 else 1e-7
    for blocks in (parts, [sp.csr_matrix(x) for x in parts]):
        found = product(blocks, mean, P, scale, weights)
        np.testing.assert_allclose(found, expected, rtol=0, atol=bound * np.abs(expected).max())


def test_a_large_dense_block_is_centred_in_chunks():
    rng = np.random.default_rng(1)
    X, P = rng.standard_normal((110_000, 10)), rng.standard_normal((10, 2))
    centred = X - X.mean(0)
    np.testing.assert_allclose(product([X], X.mean(0), P), centred.T @ centred @ P, rtol=0, atol=1e-6)


def test_stays_semidefinite_with_a_mean_that_is_off():
    X = sp.random(50, 8, density=0.4, random_state=2, format="csr")
    A = product([X], np.asarray(X.mean(0)).ravel() + 0.1, np.eye(8))
    assert np.linalg.eigvalsh((A + A.T) / 2).min() > -1e-12


def test_narrow_sparse_blocks_and_empty_ones():
    X = sp.csr_matrix(np.array([[1.0, 2.0], [0.0, 3.0]]))
    mean = np.array([0.5, 2.5, 0.0])
    found = product([X, sp.csr_matrix((0, 1))], mean, np.eye(3))
    rows = np.array([[1.0, 2.0, 0.0], [0.0, 3.0, 0.0]]) - mean
    np.testing.assert_allclose(found, rows.T @ rows)


@pytest.mark.parametrize("columns", [0, 1, 7])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_threads_change_nothing(form, columns):
    rng = np.random.default_rng(5)
    X = rng.standard_normal((60, 9)) * (rng.random((60, 9)) < 0.4)
    P, w = rng.standard_normal((9, columns)), rng.random(60)
    found = []
    for threads in (1, 2, 3):
        with ScatterProduct(X.mean(0), P, None, threads) as total:
            for part in np.split(np.arange(60), [20, 21]):
                total.add(Block(form(X[part])), w[part])
            found.append(total.result())
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], atol=1e-12)
