"""Partial least squares from moments, by Dayal and MacGregor's kernel algorithm.

From J. Chemometrics 11, 1997 [mathematics §5]. It starts with S = Cxy, the cross-covariance of
features and targets. Each component is

    w = leading left singular vector of S
    r = w − Σ_j (ℓ_jᵀ r) r_j
    c = Cxx r;  t = rᵀ c
    ℓ = c / t;  S ← S − ℓ (rᵀ S)

The rotations r transform centred rows, so scores need no deflation and rows are never read again.
Deflating S alone (not Cxx) is enough, because r is made orthogonal to the earlier loadings ℓ.

p components cost O(p (d² + d k min(d, k))) with Cxx, and O(p d k min(d, k)) with its diagonal.
Memory is O(d k).
"""

import numpy as np

from stream_dr.solve.spectral import EPS, left_singular

_SMALLEST = 1e-12
"""Share of the first covariance below which one is rounding."""


def pls_rotations(
    spread: np.ndarray, cross: np.ndarray, most: int, noise: np.ndarray | float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return rotations r (features, p) and squared covariances σ² (p,).

    Stops early if the rest of S, or the variance along r, is only rounding.

    Parameters
    ----------
    spread : (features, features) or (features,)
        Cxx or its diagonal.
    cross : (features, k)
        Cxy. ‖w‖ = 1, not ‖r‖, and the largest entry of w is positive.
    most : int
        Maximum number of components p.
    noise : (features,) or float
        Size up to which a column's covariances are rounding.
    """
    S = cross.copy()
    largest = 0.0
    vectors: list[np.ndarray] = []
    loads: list[np.ndarray] = []
    sizes: list[float] = []

    for _ in range(most):
        S[np.linalg.norm(S, axis=1) <= noise] = 0.0
        w, sigma = _leading_singular(S)
        if sigma <= _SMALLEST * max([sigma, *sizes]):
            break

        r = w.copy()
        for load, earlier in zip(loads, vectors, strict=True):
            r -= (load @ r) * earlier
        c = spread @ r if spread.ndim == 2 else spread * r
        t = float(r @ c)
        if t <= len(r) * EPS * largest * float(r @ r):
            break

        largest = max(largest, t / float(r @ r))
        load = c / t
        S -= np.outer(load, r @ S)
        vectors.append(r)
        loads.append(load)
        sizes.append(sigma)
    return np.array(vectors).reshape(len(vectors), len(cross)).T, np.array(sizes) ** 2


def _leading_singular(S: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the leading left singular vector (features,) and its singular value.

    The largest entry of the vector is positive.
    """
    vectors, values = left_singular(S)
    if len(values) == 0:
        return np.zeros(len(S)), 0.0
    w, sigma = vectors[:, 0], float(values[0])
    return (-w if w[np.abs(w).argmax()] < 0 else w), sigma
