"""Random Fourier features, whose inner products approximate a shift-invariant kernel.

The method is that of Rahimi and Recht (2007). k(x, x') ≈ φ(x)ᵀφ(x') with φ(x) = √(2/D) [cos Ωᵀx,
sin Ωᵀx] and D/2 frequencies Ω drawn from the spectrum of the kernel k [SRP eq. 15]:

- RBF, exp(−γ|x − x'|²): Ω ~ N(0, 2γ). The orthogonal variant draws blocks of `features` orthogonal
  frequencies with the lengths of independent ones, for a smaller error at the same D (Yu, Suresh,
  Choromanski, Holtmann-Rice, Kumar 2016).
- Laplace, exp(−γ|x − x'|₁): Ω ~ Cauchy(0, γ).

The error of k is about 1/√D. Cost per row: O(entries · D / 2) products and D cosines. Memory of the
map: 4 · features · D bytes.

Why this way: with sine and cosine of each frequency, instead of a cosine with a random phase,
k(x, x) is exactly 1 and the error is smaller for nearby rows. Row i of Ω is drawn from (seed, i), so
a stream may grow features without a change of earlier rows. The orthogonal variant couples all rows
of Ω and needs the width at the start.
"""

import warnings
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import scipy.sparse as sp
from scipy.special import gammaincinv

from stream_dr.errors import InvalidParameter, NarrowKernel
from stream_dr.feature_maps.draws import cauchys, check_seed, finite_number, normals, open_uniforms
from stream_dr.feature_maps.feature_map import FeatureMap
from stream_dr.rows.block import Block, Rows
from stream_dr.rows.sparse_rows import is_sparse

SPECTRUM, LENGTHS = 21, 22
"""Purposes of the draws (see draws.py). Block b of the orthogonal variant adds 100 · b."""
FARTHEST = 1e9
"""Largest |ωᵀx|. Beyond it sine and cosine would be noise of rounding, so they are set to 0.

The kernel of rows so far apart is 0, too. Scale such rows, or lower gamma.
"""
LEAST_MEDIAN, MEDIAN_ROWS = 0.01, 200
"""Median kernel value of a first batch below which a warning is issued, and its number of rows."""
MOST_ORTHOGONAL = 4096
"""Maximum number of features of the orthogonal variant, which takes O(features³) to draw."""


@dataclass(frozen=True)
class RandomFourier(FeatureMap):
    """Random Fourier features.

    Attributes
    ----------
    n_features : int
        Number D of features, even.
    kernel : "rbf" or "laplace"
    gamma : float or None
        γ > 0, in the inverse unit of |x|² or |x|. None lets the first batch decide: 1/d for dense
        rows or a declared width d, 1 for sparse rows of undeclared width.
    seed : int
        Seed of the draws.
    orthogonal : bool
        True for the orthogonal variant, for "rbf" and at most 4,096 features.
    """

    n_features: int = 500
    kernel: str = "rbf"
    gamma: float | None = None
    seed: int = 0
    orthogonal: bool = False

    @property
    def fixed_width(self) -> bool:
        """True if the number of features is fixed by the first row."""
        return self.orthogonal

    @property
    def settled(self) -> bool:
        """True if gamma is a number."""
        return self.gamma is not None

    def decided(self, block: Block) -> "RandomFourier":
        """Return the map with the gamma that the first batch gives it."""
        if self.settled:
            return self
        # The width of sparse rows grows unless it is declared, so the first batch's means nothing.
        declared = not block.sparse or block.width_stated
        return replace(self, gamma=1.0 / max(1, block.features) if declared else 1.0)

    def warn_if_unsuitable(self, X: Rows) -> None:
        """Warn (NarrowKernel) if most kernel values of the first rows X are near 0."""
        gamma = float(self.gamma or 0.0)
        distance = _median_distance(X, self.kernel)
        value = float(np.exp(-gamma * distance))
        if value < LEAST_MEDIAN and np.isfinite(distance):
            warnings.warn(
                f"the kernel of two rows of the first batch is {value:.2g} in the median (gamma={gamma:.3g}), so that every "
                f"row is far from all others. gamma={np.log(2.0) / distance:.3g} makes it .5; or scale the features.",
                NarrowKernel,
                stacklevel=2,
            )

    def is_decided_as(self, other: FeatureMap) -> bool:
        """Return True if `other` is this map after the first batch decided gamma."""
        return not self.settled and isinstance(other, RandomFourier) and replace(other, gamma=self.gamma) == self

    def out_features(self, width: int) -> int:
        """Return the number D of features."""
        return self.n_features

    def check(self) -> None:
        """Raise InvalidParameter if a value is outside its range."""
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

    def apply(self, X: Rows, width: int, names: tuple[str, ...] | None = None) -> np.ndarray:
        """Return φ of rows X (rows, features) as (rows, D) float64.

        X may be dense or CSR. φ is 0 where |ωᵀx| is above `FARTHEST`.
        """
        omega = frequencies(self, width if self.orthogonal else _next_power_of_2(X.shape[1]))
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
        """Return 4 · features · D, with features rounded up to a power of 2."""
        return 4 * self.n_features * (width if self.orthogonal else _next_power_of_2(width))


@lru_cache(maxsize=8)
def frequencies(spec: RandomFourier, width: int) -> np.ndarray:
    """Return Ω (width, D/2) float64, read-only.

    Row i depends on (seed, i) only, except in the orthogonal variant. The map must be settled.
    """
    half = spec.n_features // 2
    gamma = float(spec.gamma)  # type: ignore[arg-type]
    if spec.orthogonal:
        omega = np.sqrt(2.0 * gamma) * _orthogonal_frequencies(width, half, spec.seed)
    elif spec.kernel == "rbf":
        omega = np.sqrt(2.0 * gamma) * normals(spec.seed, SPECTRUM, 0, width, half)
    else:
        omega = gamma * cauchys(spec.seed, SPECTRUM, 0, width, half)
    omega.flags.writeable = False
    return omega


def _median_distance(X: Rows, kernel: str) -> float:
    """Return the median |x − x'|² of rows X (rows, features), 0 for a single row.

    X may be dense or CSR. For the Laplace kernel it is |x − x'|₁.
    """
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


def _orthogonal_frequencies(width: int, count: int, seed: int) -> np.ndarray:
    """Return (width, count) orthogonal frequencies with the lengths of standard normal ones.

    Columns are orthogonal within blocks of at most `width`. Raises InvalidParameter.
    """
    if width > MOST_ORTHOGONAL:
        raise InvalidParameter(
            f"{width} features; the orthogonal variant takes at most {MOST_ORTHOGONAL}. Set orthogonal to false."
        )
    blocks = []
    for b, start in enumerate(range(0, count, max(1, width))):
        size = min(width, count - start)
        q, r = np.linalg.qr(normals(seed, SPECTRUM + 100 * b, 0, width, size))
        blocks.append(q * np.sign(np.diag(r)))
    lengths = np.sqrt(2.0 * gammaincinv(width / 2.0, open_uniforms(seed, LENGTHS, 0, count)[:, 0]))
    return np.hstack(blocks) * lengths if width else np.zeros((0, count))


def _next_power_of_2(width: int) -> int:
    """Return the next power of 2, so that a growing stream seldom draws again."""
    return 1 << max(0, int(width) - 1).bit_length()
