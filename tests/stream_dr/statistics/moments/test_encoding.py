"""encoding: labels and numbers as columns, and the Fourier features of an RBF kernel."""

import numpy as np
import pytest

from stream_dr import errors
from stream_dr.batch.targets import class_targets, continuous_targets, multilabel_targets
from stream_dr.statistics.moments.encoding import (
    Fourier,
    check_encoding,
    dense_encoded_rows,
    encode_as_columns,
    slice_encoded_rows,
)
from tests.naive import moments as naive

SETS = [["b"], [], ["a", "b", "c"], ["c", "a"], []]


@pytest.mark.parametrize("zhou", [False, True])
def test_label_sets_as_columns_whole_and_in_parts(zhou):
    targets = multilabel_targets(SETS)
    encoded = encode_as_columns(targets, "zhou" if zhou else "indicator", np.arange(3, dtype=np.int32))
    expected = naive.indicator(SETS, list(targets.labels), zhou)
    np.testing.assert_allclose(dense_encoded_rows(encoded, 5, 3), expected)
    np.testing.assert_allclose(dense_encoded_rows(slice_encoded_rows(encoded, 2, 4), 2, 3), expected[2:4])


def test_one_label_as_columns():
    encoded = encode_as_columns(class_targets(["x", "y", "x"]), "zhou", np.array([2, 0], dtype=np.int32))
    np.testing.assert_array_equal(dense_encoded_rows(encoded, 3, 3), [[0, 0, 1], [1, 0, 0], [0, 0, 1]])


def test_fourier_features_are_those_of_an_rbf_kernel():
    y = np.random.default_rng(0).normal(size=(30, 2))
    psi = Fourier(20000, bandwidth=1.5, seed=7)(y)
    distance = ((y[:, None] - y[None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(psi @ psi.T, np.exp(-distance / (2 * 1.5**2)), atol=0.03)


def test_fourier_columns_are_drawn_by_index():
    omega, phase = Fourier(5, seed=3).draw_frequencies_and_phases(2)
    more, further = Fourier(8, seed=3).draw_frequencies_and_phases(4)
    np.testing.assert_array_equal(more[:2, :5], omega)
    np.testing.assert_array_equal(further[:5], phase)
    assert not np.array_equal(Fourier(5, seed=4).draw_frequencies_and_phases(2)[0], omega)


def test_numbers_are_their_own_columns():
    encoded = encode_as_columns(continuous_targets([[1.0, 2.0], [3.0, 4.0]]), "indicator", np.zeros(0, dtype=np.int32))
    np.testing.assert_array_equal(dense_encoded_rows(slice_encoded_rows(encoded, 1, 2), 1, 2), [[3.0, 4.0]])


def test_encodings_that_are_none():
    for encoding in ("other", Fourier(0), Fourier(3, bandwidth=0.0)):
        with pytest.raises(errors.InvalidParameter):
            check_encoding(encoding)
