"""Partial least squares from moments (Dayal and MacGregor's kernel algorithm).

The algorithm is from J. Chemometrics 11, 1997 [mathematics §5]. It needs two sums over the rows:

* Cxx (features, features), the scatter of the centred rows,
* Cxy (features, k), the products of the centred rows and k targets, summed over the rows.

The matrix S starts as Cxy. For each component, the algorithm computes a weight vector w, a
rotation r and a loading ℓ, each (features,), and changes S:

    w = leading left singular vector of S
    r = w − Σ_j (ℓ_jᵀ r) r_j
    c = Cxx r;  t = rᵀ c
    ℓ = c / t;  S ← S − ℓ (rᵀ S)

The sum is over the earlier components j. The scores are the centred rows times the rotations, so
no earlier component must be subtracted from the rows. Cxx stays unchanged, because each rotation
is orthogonal to the loadings of the earlier components.

p components of d features cost O(p (d² + d k min(d, k))) with Cxx, and O(p d k min(d, k)) with the
diagonal of Cxx. Memory is O(d k).
"""

import numpy as np

from stream_dr.solve.spectral import EPS, left_singular_pairs, with_fixed_signs

_SMALLEST = 1e-12
"""Relative covariance up to which a component is rounding error.

The covariance of a component with the targets is divided by the largest covariance of all
components so far.
"""


def pls_rotations(
    scatter: np.ndarray, cross_sums: np.ndarray, max_components: int, cross_sum_noise: np.ndarray | float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rotations and squared covariances of PLS components.

    The rotations (features, p) are the vectors by which the centred rows are multiplied to get the
    p components' scores. The squared covariances (p,) are those of scores and targets. There are
    fewer components than `max_components` if a further one would be only rounding error.

    Parameters
    ----------
    scatter : (features, features) or (features,)
        Scatter Cxx of the centred rows, or its diagonal.
    cross_sums : (features, k)
        Cross sums Cxy, the products of the centred rows and k targets, summed over the rows.
    max_components : int
        Maximum number of components.
    cross_sum_noise : (features,) or float
        Euclidean norm up to which a feature's k cross sums are rounding error.

    Notes
    -----
    The first rotation has length 1, and its entry of largest absolute value is positive. Later
    rotations may have another length.
    """
    S = cross_sums.copy()
    largest = 0.0
    vectors: list[np.ndarray] = []
    loads: list[np.ndarray] = []
    sigmas: list[float] = []

    # Without this limit, one more component than there are features could pass the checks below.
    for _ in range(min(max_components, len(cross_sums))):
        # Set a row of S (summed feature-target products) to zero if the row is rounding error.
        S[np.linalg.norm(S, axis=1) <= cross_sum_noise] = 0.0
        # The first left singular vector of S is the direction of largest covariance (`sigma`).
        left, values = left_singular_pairs(S)
        sigma = float(values[:1].sum())
        if sigma <= _SMALLEST * max([sigma, *sigmas]):
            break

        # Rows are projected by r, which is this vector made orthogonal to earlier loadings.
        r = with_fixed_signs(left[:, :1])[:, 0]
        for load, earlier in zip(loads, vectors, strict=True):
            r -= (load @ r) * earlier
        c = scatter @ r if scatter.ndim == 2 else scatter * r
        t = float(r @ c)
        if t <= len(r) * EPS * largest * float(r @ r):
            break

        # `largest` is the largest variance so far. Much smaller ones count as rounding error later.
        largest = max(largest, t / float(r @ r))
        # Compute this component's loading, and remove the component from S, the cross sums.
        load = c / t
        S -= np.outer(load, r @ S)
        vectors.append(r)
        loads.append(load)
        sigmas.append(sigma)
    return np.array(vectors).reshape(len(vectors), len(cross_sums)).T, np.array(sigmas) ** 2
