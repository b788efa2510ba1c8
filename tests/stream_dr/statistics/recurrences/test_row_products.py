"""The row kernels against numpy, on widths below, at and past a tile."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from stream_dr.statistics.recurrences.row_products import (
    TILE,
    add_block_to_basis,
    add_row_to_basis,
    correct_products,
    write_block_products,
    write_shifted_block,
    write_sparse_row_products,
)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sparse_rows(dtype: Any) -> None:
    random = np.random.default_rng(0)
    X = sp.random(5, 40, density=0.3, format="csr", random_state=0).astype(dtype)
    D, q = random.normal(size=(40, 8)), random.normal(size=8)
    for t in range(5):
        row, products = X[t].toarray().ravel().astype(np.float64) * 0.5, np.empty(8)
        squared = write_sparse_row_products(X.indices, X.data, X.indptr[t], X.indptr[t + 1], 0.5, D, products)
        np.testing.assert_allclose(products, D.T @ row)
        np.testing.assert_allclose(squared, row @ row)
        expected = D + np.outer(row, q)
        add_row_to_basis(X.indices, X.data, X.indptr[t], X.indptr[t + 1], 0.5, D, q)
        np.testing.assert_allclose(D, expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("features", [1, 7, TILE, TILE + 1, 2 * TILE + 30])
def test_dense_blocks(features: int, dtype: Any) -> None:
    random = np.random.default_rng(features)
    X, shift = random.normal(size=(6, features)).astype(dtype), random.normal(size=features)
    D, Q = random.normal(size=(features, 8)), random.normal(size=(4, 8))
    rows = X[2:].astype(np.float64) - shift
    block, raw = np.empty((features, 4)), np.empty(4)
    products, inner = np.empty((4, 8)), np.empty((4, 4))
    write_shifted_block(X, 2, 1.0, shift, block, raw)
    write_block_products(block, D, products, inner)
    np.testing.assert_allclose(block, rows.T)
    np.testing.assert_allclose(raw, (X[2:].astype(np.float64) ** 2).sum(axis=1))
    np.testing.assert_allclose(products, rows @ D, atol=1e-10)
    np.testing.assert_allclose(inner, rows @ rows.T, atol=1e-10)
    expected = D + rows.T @ Q
    add_block_to_basis(block, D, Q)
    np.testing.assert_allclose(D, expected, atol=1e-12)


def test_rows_of_a_block_before_this_one_count() -> None:
    random = np.random.default_rng(1)
    rows, D, Q = random.normal(size=(3, 20)), random.normal(size=(20, 8)), random.normal(size=(3, 8))
    products = rows @ D
    correct_products(products, rows @ rows.T, Q, 2)
    np.testing.assert_allclose(products[2], (D + rows[:2].T @ Q[:2]).T @ rows[2])
