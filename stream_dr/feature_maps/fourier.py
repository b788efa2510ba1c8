"""fourier: random Fourier features, whose inner products approximate a shift-invariant kernel (Rahimi and Recht 2007).

k(x, x') ≈ φ(x)ᵀφ(x') with φ(x) = √(2/D) [cos Ωᵀx, sin Ωᵀx], D/2 frequencies drawn from the kernel's spectrum [SRP eq.
15]:

- RBF, exp(−γ|x − x'|²): Ω ~ N(0, 2γ); orthogonal variant: frequencies in blocks of `features` orthogonal ones of the
lengths
  that independent ones have (Yu, Suresh, Choromanski, Holtmann-Rice, Kumar 2016), a smaller error for the same D.
- Laplace, exp(−γ|x − x'|₁): Ω ~ Cauchy(0, γ).

The error of k is about 1/√D. Cost a row: O(entries · D / 2) products and D cosines; memory of the map: 4 · features ·
D bytes.

Why this way: sine and cosine of one frequency, not a cosine with a random phase: k(x, x) is exactly 1 and the error
is smaller for nearby rows. Row i of Ω is drawn from (seed, i), so a stream may grow features without changing what it
has seen; the orthogonal variant couples all rows of Ω and needs the width at the start.
"""

import warnings
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import gammaincinv

from stream_dr.errors import InvalidParameter, NarrowKernel
from stream_dr.feature_maps.draws import cauchys, check_seed, finite_number, normals, uniforms
from stream_dr.feature_maps.feature_map import FeatureMap
from stream_dr.rows.sparse_rows import is_sparse

SPECTRUM, LENGTHS = 21, 22
"""Purposes of the draws (see draws.py); block b of the orthogonal variant adds 100 · b."""
FARTHEST = 1e9
"""Past this |ωᵀx| has no seven digits of its period left: sine and cosine would be noise, and are taken for 0, which is what
the kernel is of rows so far apart. Scale such rows, or lower gamma."""
LEAST_MEDIAN, MEDIAN_ROWS = 0.01, 200
"""Median kernel value of a first batch below which there is a warning, and number of rows that it is measured on."""
MOST_ORTHOGONAL = 4096
"""Widest rows of the orthogonal variant, which costs O(features³) once."""


@dataclass(frozen=True)
class RandomFourier(FeatureMap):
    """Random Fourier features.

    n_features: D, even. kernel: "rbf" or "laplace". gamma: γ > 0, in the inverse unit of |x|² or |x|; None: decided at the
    first batch and kept in the state, 1/d of dense rows or of a declared width d, 1 of sparse rows of undeclared width.
    seed: of the draws. orthogonal: the orthogonal variant ("rbf" only, at most 4,096 features, fixed at the first batch).
    """

    n_features: int = 500
    kernel: str = "rbf"
    gamma: float | None = None
    seed: int = 0
    orthogonal: bool = False

    @property
    def fixed_width(self) -> bool:
        """Whether all features must be known at the first row."""
        return self.orthogonal

    @property
    def settled(self) -> bool:
        """True if gamma is a number."""
        return self.gamma is not None

    def decided(self, block: Any) -> "RandomFourier":
        """Return the map with the gamma that the first batch gives it."""
        if self.settled:
            return self
        # The width of sparse rows grows with the stream unless it is declared, so the first batch's says nothing.
        declared = not block.sparse or block.width_stated
        return replace(self, gamma=1.0 / max(1, block.features) if declared else 1.0)

    def warn_of(self, X: Any) -> None:
        """Warn (NarrowKernel) if most kernel values of the first rows X are near 0."""
        gamma, distance = float(self.gamma or 0.0), _median_distance(X, self.kernel)
        value = float(np.exp(-gamma * distance))
        if value < LEAST_MEDIAN and np.isfinite(distance):
            warnings.warn(
                f"the kernel of two rows of the first batch is {value:.2g} in the median (gamma={gamma:.3g}), so that every "
                f"row is far from all others. gamma={np.log(2.0) / distance:.3g} makes it .5; or scale the features.",
                NarrowKernel,
                stacklevel=2,
            )

    def became(self, other: FeatureMap) -> bool:
        """Whether `other` is this map with a gamma that was decided."""
        return not self.settled and isinstance(other, RandomFourier) and replace(other, gamma=self.gamma) == self

    def out_features(self, width: int) -> int:
        """D."""
        return self.n_features

    def check(self) -> None:
        """Raise InvalidParameter when a value is outside its range."""
        n, gamma = self.n_features, self.gamma
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or not 2 <= n < 2**31 or n % 2:
            raise InvalidParameter(
                f"n_features={n!r} of random_fourier; it must be an even integer ≥ 2 and below 2**31."
            )
        if self.kernel not in ("rbf", "laplace"):
            raise InvalidParameter(f"kernel={self.kernel!r} of random_fourier; it must be 'rbf' or 'laplace'.")
        if gamma is not None and not (finite_number(gamma) and gamma > 0):
            raise InvalidParameter(f"gamma={gamma!r} of random_fourier; it must be a finite number > 0, or None.")
        if not isinstance(self.orthogonal, bool) or (self.orthogonal and self.kernel != "rbf"):
            raise InvalidParameter(
                f"orthogonal={self.orthogonal!r}; it must be a bool, and 'rbf' the kernel where true."
            )
        check_seed(self.seed)

    def apply(self, X: Any, width: int, names: tuple[str, ...] | None = None) -> np.ndarray:
        """φ of rows X (rows, features), dense or CSR, as (rows, D) float64; 0 where |ωᵀx| is past `FARTHEST`."""
        omega = frequencies(self, width if self.orthogonal else _rounded(X.shape[1]))
        angles = np.asarray(X @ omega[: X.shape[1]])
        far = np.abs(angles) > FARTHEST
        out = np.empty((X.shape[0], self.n_features))
        half = self.n_features // 2
        np.cos(angles, out=out[:, :half])
        np.sin(angles, out=out[:, half:])
        out *= np.sqrt(1.0 / half)
        if far.any():
            out[np.hstack([far, far])] = 0.0
        return out

    def bytes(self, width: int) -> int:
        """4 · features · D, features rounded up to a power of 2."""
        return 4 * self.n_features * (width if self.orthogonal else _rounded(width))


@lru_cache(maxsize=8)
def frequencies(spec: RandomFourier, width: int) -> np.ndarray:
    """Ω (width, D/2) float64, not to be written to; row i depends on (seed, i) only, save in the orthogonal variant."""
    half, gamma = spec.n_features // 2, float(spec.gamma)  # type: ignore[arg-type]  # of a map that is settled
    if spec.orthogonal:
        omega = np.sqrt(2.0 * gamma) * _orthogonal(width, half, spec.seed)
    elif spec.kernel == "rbf":
        omega = np.sqrt(2.0 * gamma) * normals(spec.seed, SPECTRUM, 0, width, half)
    else:
        omega = gamma * cauchys(spec.seed, SPECTRUM, 0, width, half)
    omega.flags.writeable = False
    return omega


def _median_distance(X: Any, kernel: str) -> float:
    """Return the median |x − x'|² (Laplace: |x − x'|₁) of rows X (rows, features), dense or CSR; 0 of one row."""
    from sklearn.metrics.pairwise import euclidean_distances, manhattan_distances

    chosen = np.random.default_rng(0).permutation(X.shape[0])[:MEDIAN_ROWS]
    if len(chosen) < 2:
        return 0.0
    rows = X[np.sort(chosen)].astype(np.float64)
    if is_sparse(rows):
        # scikit-learn takes 32-bit indices only, and rows may be wider than those reach.
        used, at = np.unique(rows.indices, return_inverse=True)
        parts = rows.data, at.astype(np.int32), rows.indptr.astype(np.int32)
        rows = sp.csr_matrix(parts, shape=(len(chosen), len(used)))
    else:
        # Rows far from 0 would lose the digits of their differences.
        rows = rows - rows[0]
    with np.errstate(over="ignore", invalid="ignore"):
        distances = manhattan_distances(rows) if kernel == "laplace" else euclidean_distances(rows, squared=True)
    return float(np.median(distances[np.triu_indices(len(chosen), 1)]))


def _orthogonal(width: int, count: int, seed: int) -> np.ndarray:
    """(width, count): blocks of at most `width` orthogonal columns with the lengths of standard normal ones."""
    if width > MOST_ORTHOGONAL:
        raise InvalidParameter(
            f"{width} features; the orthogonal variant takes at most {MOST_ORTHOGONAL}. Set orthogonal to false."
        )
    blocks = []
    for b, start in enumerate(range(0, count, max(1, width))):
        size = min(width, count - start)
        q, r = np.linalg.qr(normals(seed, SPECTRUM + 100 * b, 0, width, size))
        blocks.append(q * np.sign(np.diag(r)))
    lengths = np.sqrt(2.0 * gammaincinv(width / 2.0, uniforms(seed, LENGTHS, 0, count)[:, 0]))
    return np.hstack(blocks) * lengths if width else np.zeros((0, count))


def _rounded(width: int) -> int:
    """The next power of 2, so that a growing stream draws anew seldom."""
    return 1 << max(0, int(width) - 1).bit_length()
