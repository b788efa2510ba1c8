"""Partial least squares from moments: Dayal & MacGregor's kernel algorithm (J. Chemometrics 11, 1997) [mathematics §5].

    S = Cxy;  per component:  w = leading left singular vector of S;  r = w − Σ_j (ℓ_jᵀ r) r_j;  c = Cxx r;  t = rᵀ c;
    ℓ = c / t;  q = Sᵀ r / t;  S ← S − ℓ (rᵀ S)

Cost: O(p (d² + d k min(d, k))) with Cxx, O(p d k min(d, k)) with its diagonal; memory O(d k).

Why this way: rows are never read again; the rotations r are what transforms centred rows, so scores need no deflation.
Deflating S alone (not Cxx) is enough, because r is made orthogonal to the earlier loadings ℓ.
"""

from typing import Any

import numpy as np

from stream_dr.solve.spectral import EPS, left_singular

_SMALLEST = 1e-12
"""A component whose covariance is below this share of the first one's is rounding."""


def rotations(spread: np.ndarray, cross: np.ndarray, most: int, noise: Any = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Rotations r (features, p) and squared covariances σ² (p,), p ≤ most.

    spread: (features, features) Cxx or (features,) its diagonal. cross: (features, k) Cxy. ‖w‖ = 1, not ‖r‖; the largest
    entry of w is positive. noise: (features,) sizes up to which a column's covariances are rounding. Stops where nothing
    of S, or no variance along r, is left but rounding.
    """
    S, largest = cross.copy(), 0.0
    found: list[np.ndarray] = []
    loads: list[np.ndarray] = []
    sizes: list[float] = []
    for _ in range(most):
        S[np.linalg.norm(S, axis=1) <= noise] = 0.0
        w, sigma = _leading(S)
        if sigma <= _SMALLEST * max([sigma, *sizes]):
            break
        r = w.copy()
        for load, earlier in zip(loads, found, strict=True):
            r -= (load @ r) * earlier
        c = spread @ r if spread.ndim == 2 else spread * r
        t = float(r @ c)
        if t <= len(r) * EPS * largest * float(r @ r):
            break
        largest = max(largest, t / float(r @ r))
        load = c / t
        S -= np.outer(load, r @ S)
        found.append(r)
        loads.append(load)
        sizes.append(sigma)
    return np.array(found).reshape(len(found), len(cross)).T, np.array(sizes) ** 2


def _leading(S: np.ndarray) -> tuple[np.ndarray, float]:
    """Leading left singular vector (features,), its largest entry positive, and the singular value."""
    vectors, values = left_singular(S)
    if len(values) == 0:
        return np.zeros(len(S)), 0.0
    w, sigma = vectors[:, 0], float(values[0])
    return (-w if w[np.abs(w).argmax()] < 0 else w), sigma
