"""Columns of scales from 1e-8 to 1e8 side by side, against class means in extended precision.

Columns that are the same in every class, of any scale, must not enter: their rounding is measured by their own size, and
what columns of small scale show beside them is kept.
"""

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dr import ESTIMATORS, LDA, PLSDA, SKM, SPCA, SRP, ClassMeans
from stream_dr.errors import InvalidParameter, NeedsRefine
from tests.support.pairwise import pairwise

N, CLASSES = 90, 3
Y = np.arange(N) % CLASSES
EXPONENTS = st.lists(st.integers(-8, 8), min_size=3, max_size=3)


def rows(differing: list[int], equal: list[int], offset: float = 0.0) -> np.ndarray:
    """Three columns in which classes differ, and three in which every class has the same values, of these exponents."""
    random = np.random.default_rng(0)
    first = (random.normal(size=(N, 3)) + random.normal(size=(CLASSES, 3))[Y]) * 10.0 ** np.array(differing)
    same = np.repeat(random.normal(size=(N // CLASSES, 3)), CLASSES, axis=0) * 10.0 ** np.array(equal)
    return np.hstack([first, same + offset * 10.0 ** np.array(equal)])


def roots(X: np.ndarray) -> np.ndarray:
    """(features, classes) whose product with its transpose is Sb, summed in extended precision; exact zeros for the last
    three columns."""
    wide = X.astype(np.longdouble)
    means = [np.sqrt(np.mean(c == Y)) * (wide[c == Y].mean(axis=0) - wide.mean(axis=0)) for c in range(CLASSES)]
    G = np.array(means, dtype=np.float64).T
    G[3:] = 0.0
    return G


@settings(max_examples=60, deadline=None, derandomize=True)
@given(differing=EXPONENTS, equal=EXPONENTS, offset=st.sampled_from([0.0, 3.0, 100.0]))
@pytest.mark.parametrize("estimator", [ClassMeans(), SPCA(kernel="delta"), SKM(a=1.0)], ids=lambda e: type(e).__name__)
def test_axes_between_classes(estimator: Any, differing: list[int], equal: list[int], offset: float) -> None:
    X = rows(differing, equal, offset)
    axes, sizes, _ = np.linalg.svd(roots(X), full_matrices=False)
    estimator.fit(X, Y)
    ours = estimator.components_.T
    assert not ours[3:].any()
    lost = sizes[0] / sizes[:2]  # by which a component has fewer digits than the first
    for i in range(min(2, int(np.count_nonzero(lost < 1e9)))):
        assert 1.0 - abs(axes[:, i] @ ours[:, i]) < 1e-13 * lost[i]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(differing=EXPONENTS, equal=EXPONENTS)
def test_random_projections_and_pls_see_the_small_columns(differing: list[int], equal: list[int]) -> None:
    X, mean = rows(differing, equal), 10.0 ** np.array(differing)
    srp = SRP(n_components=4, random_state=1).fit(X, Y).components_.T
    assert not srp[3:].any()
    scaled = SRP(n_components=4, random_state=1).fit(X / np.append(mean, np.ones(3)), Y).components_.T
    np.testing.assert_allclose(np.abs(srp[:3]) / mean[:, None], np.abs(scaled[:3]), rtol=1e-9, atol=1e-12)
    first = PLSDA(n_components=1).fit(X, Y).components_
    assert not first[:, 3:].any()


@settings(max_examples=30, deadline=None, derandomize=True)
@given(differing=EXPONENTS, equal=EXPONENTS)
def test_lda_has_both_components_whatever_the_scales(differing: list[int], equal: list[int]) -> None:
    plain, scaled = LDA().fit(rows([0, 0, 0], [0, 0, 0]), Y), LDA().fit(rows(differing, equal), Y)
    np.testing.assert_allclose(scaled.eigenvalues_, plain.eigenvalues_, rtol=1e-7)


@pytest.mark.parametrize(
    ("key", "params", "scale"),
    pairwise(
        (key, params, scale)
        for key, params, scale in product(
            ESTIMATORS, [{}, {"standardize": True}, {"scatter": "diagonal"}], [1e-150, 1e-160, 1e-200, 1e-300]
        )
        if set(params) <= set(ESTIMATORS[key]().get_params())
    ),
    ids=str,
)
def test_rows_whose_squares_have_no_digits_left_raise_nothing_of_a_librarys(key, params, scale):
    random = np.random.default_rng(0)
    X, y = random.normal(size=(60, 4)), np.array(list("abc"))[np.arange(60) % 3]
    kind = ESTIMATORS[key]
    try:
        Z = kind(**params).fit(X * scale, y).transform(X * scale)
    except (InvalidParameter, NeedsRefine):
        assert params == {"scatter": "diagonal"}
    else:
        assert np.isfinite(Z).all()
