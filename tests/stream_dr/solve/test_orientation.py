"""Orientation: signs and order follow the predecessor; the map carries what is left."""

import numpy as np
import pytest

from stream_dr.solve.orientation import align_components, least_squares_map
from stream_dr.solve.spectral import largest_signed_entries


def basis(seed: int, d: int = 12, p: int = 5) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(d, p)))[0]


def test_the_first_makes_its_largest_loading_positive() -> None:
    L = -np.abs(basis(0))
    order, signs = align_components(L, np.arange(5.0)[::-1], None)
    assert list(order) == [0, 1, 2, 3, 4]
    assert ((L * signs).max(axis=0) == np.abs(L).max(axis=0)).all()


@pytest.mark.parametrize("seed", range(10))
def test_flipped_signs_come_back(seed: int) -> None:
    old, values = basis(seed), np.array([9.0, 7, 5, 3, 1])
    flips = np.random.default_rng(seed).choice([-1.0, 1.0], 5)
    order, signs = align_components(old * flips, values, old)
    np.testing.assert_array_equal((old * flips)[:, order] * signs, old)


def test_near_equal_eigenvalues_that_swapped_come_back_in_order() -> None:
    old = basis(1)
    new, values = old[:, [1, 0, 2, 4, 3]], np.array([5.0, 4.9, 3.0, 1.0, 0.99])
    order, signs = align_components(new, values, old)
    np.testing.assert_array_equal(new[:, order] * signs, old)


def test_distinct_eigenvalues_keep_their_order() -> None:
    old = basis(2)
    order, _ = align_components(old[:, [1, 0, 2, 3, 4]], np.array([9.0, 7, 5, 3, 1]), old)
    assert list(order) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("p_old", "p_new", "d_old", "d_new"), [(5, 3, 12, 12), (3, 5, 12, 12), (4, 4, 8, 12), (0, 3, 12, 12)]
)
def test_shapes_may_change(p_old: int, p_new: int, d_old: int, d_new: int) -> None:
    old, new = basis(3, d_old, max(p_old, 1))[:, :p_old], basis(4, d_new, p_new)
    order, signs = align_components(new, np.arange(float(p_new))[::-1], old)
    assert sorted(order) == list(range(p_new))
    found, residual = least_squares_map(old, new)
    assert found.shape == (p_old, p_new)
    assert 0 <= residual <= 1 + 1e-12
    assert set(np.abs(signs)) == {1.0}


def test_alignment_is_least_squares_whatever_the_columns_scales() -> None:
    rng = np.random.default_rng(5)
    scales = np.array([1, 1e-6, 1e6, 3])
    unit, new = rng.normal(size=(20, 4)), rng.normal(size=(20, 3))
    found, residual = least_squares_map(unit * scales, new)
    exact = np.linalg.lstsq(unit, new)[0]
    np.testing.assert_allclose(found * scales[:, None], exact, atol=1e-12)
    assert residual == pytest.approx(np.linalg.norm(unit @ exact - new) / np.linalg.norm(new), rel=1e-12)


def test_a_rotation_has_no_residual() -> None:
    old = basis(6)
    turn = np.linalg.qr(np.random.default_rng(6).normal(size=(5, 5)))[0]
    found, residual = least_squares_map(old, old @ turn)
    np.testing.assert_allclose(found, turn, atol=1e-12)
    assert residual < 1e-12


def test_the_entry_of_largest_size_is_the_first_of_equals() -> None:
    random = np.random.default_rng(5)
    for shape in ((1, 3), (40, 1), (200, 7), (0, 2), (3, 0), (257, 1), (1_001, 3), (40, 300)):
        loadings = random.integers(-3, 4, shape).astype(np.float64)
        found = largest_signed_entries(loadings)
        np.testing.assert_array_equal(found, largest_signed_entries(np.asfortranarray(loadings)))
        np.testing.assert_array_equal(found[::2], largest_signed_entries(loadings[:, ::2]))
        for j in range(shape[1]):
            column = loadings[:, j]
            assert found[j] == (column[np.abs(column).argmax()] if len(column) else 0.0)
