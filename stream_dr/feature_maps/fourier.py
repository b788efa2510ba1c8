"""Random Fourier features, whose inner products approximate a shift-invariant kernel.

Rahimi and Recht (2007) describe the method. The mapped row of a row x (d,) has D numbers

    φ(x) = √(2/D) [cos Ωᵀx, sin Ωᵀx]

The kernel of two rows x and x' is approximately φ(x)ᵀφ(x'). The columns of the matrix Ω (d, D/2)
are random frequencies. Their distribution depends on the kernel and its parameter γ [SRP eq. 15]:

- RBF, exp(−γ|x − x'|²): a normal distribution of variance 2γ. In the orthogonal variant,
  frequencies are also orthogonal within blocks, which makes the error smaller (Yu, Suresh,
  Choromanski, Holtmann-Rice, Kumar 2016).
- Laplace, exp(−γ|x − x'|₁): a Cauchy distribution of scale γ.
- Matérn (feature_map.py): √(2γ) times a multivariate t distribution of 2ν degrees of freedom.

The error of the approximate kernel is about 1/√D. Mapping a row costs O(nonzeros · D). The map
takes 4 · features · D bytes of memory.

Row i of Ω depends only on the seed and i. So a stream may get more features, and earlier rows of Ω
do not change. In the orthogonal variant all rows of Ω depend on each other, so the number of
features must be known at the start.
"""

import warnings
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import scipy.sparse as sp
from scipy.special import gammaincinv

from stream_dr.batch.block import Block, Rows
from stream_dr.batch.sparse import is_sparse
from stream_dr.errors import InvalidParameter, NarrowKernel
from stream_dr.feature_maps.feature_map import (
    FeatureMap,
    check_nu,
    check_seed_or_none,
    draw_cauchys,
    draw_normals,
    draw_uniforms,
    is_finite_number,
    is_integer_within,
    matern,
)

SPECTRUM, LENGTHS, FREEDOM = 21, 22, 24
"""Numbers that identify the uses of random numbers (parameter `purpose_id` in feature_map.py).

SPECTRUM: frequencies. Block b of orthogonal frequencies uses SPECTRUM + 100 · b.
LENGTHS: lengths of orthogonal frequencies.
FREEDOM: χ² variables, by which the frequencies of the Matérn kernel are divided.
"""
FARTHEST = 1e9
"""Largest angle |ωᵀx| for a row x and a frequency ω.

The sine and cosine of a larger angle would be rounding errors, so they are set to 0. To avoid such
angles, scale the rows or choose a smaller gamma.
"""
LEAST_MEDIAN, MEDIAN_ROWS = 0.01, 200
"""Limits for the warning about the kernel of a first batch.

LEAST_MEDIAN: median kernel value of two rows below which the warning is issued.
MEDIAN_ROWS: largest number of rows of which the median is computed.
"""
MOST_ORTHOGONAL = 4096
"""Largest number of features for the orthogonal variant.

Drawing the orthogonal frequencies takes O(features³).
"""


@dataclass(frozen=True)
class RandomFourier(FeatureMap):
    """Random Fourier features, whose inner products approximate a kernel.

    Attributes
    ----------
    n_features : int
        Number D of columns of mapped rows, even.
    kernel : "rbf", "laplace" or "matern"
        exp(−γ|x − x'|²), exp(−γ|x − x'|₁) or the Matérn kernel (feature_map.py) for rows x and x'.
    gamma : float or None
        Parameter γ > 0 of the kernel. None means 1/d, where d is the number of features of the
        first batch. For sparse rows without a declared width, None means 1.
    seed : int
        Seed of the random numbers.
    orthogonal : bool
        True for orthogonal frequencies. They require the kernel "rbf" and at most 4,096 features.
    nu : float
        Smoothness ν of the Matérn kernel, above 0 and at most 100.
    """

    n_features: int = 500
    kernel: str = "rbf"
    gamma: float | None = None
    seed: int = 0
    orthogonal: bool = False
    nu: float = 1.5

    @property
    def first_row_fixes_width(self) -> bool:
        """True if later rows cannot have more features than the first row."""
        return self.orthogonal

    @property
    def has_final_parameters(self) -> bool:
        """True if gamma is a number.

        False if gamma is computed from the first batch.
        """
        return self.gamma is not None

    def with_first_batch_parameters(self, block: Block) -> "RandomFourier":
        """Return the map with a number as gamma.

        The gamma of this map must be None. It becomes 1/d, where d is the number of features of the
        batch. For sparse rows without a declared width, it becomes 1.

        block: the first batch.
        """
        # Sparse rows without a declared width may get wider, so their width is not used.
        gamma = 1.0
        if not block.sparse or block.width_stated:
            gamma = 1.0 / max(1, block.features)
        return replace(self, gamma=gamma)

    def warn_if_unsuitable(self, X: Rows) -> None:
        """Issue NarrowKernel if most kernel values are near 0.

        NarrowKernel is a warning. The kernel value of a pair of rows is near 0 if the rows are far
        from each other.

        X: (rows, features), the first rows of the stream.
        """
        # If γ makes the kernel of two rows at the median distance small, propose another γ.
        # `distance` is |x − x'|₁ for the Laplace kernel, and |x − x'|² for the others, as in the
        # kernel's exponent. The proposed γ solves exp(−γ · distance) = ½.
        # gamma is a number here, because the first batch has set it if it was None.
        gamma = float(self.gamma or 0.0)
        distance = _median_distance(X, self.kernel)
        if self.kernel == "matern":
            kernel = matern(np.array(distance), gamma, self.nu)
        else:
            kernel = np.exp(-gamma * distance)
        value = float(kernel)
        if value < LEAST_MEDIAN and np.isfinite(distance):
            better = np.log(2.0) / distance
            warnings.warn(
                f"the kernel of two rows of the first batch is {value:.2g} in the median (gamma={gamma:.3g}), so that every "
                f"row is far from all others. gamma={better:.3g} makes it .5; or scale the features.",
                NarrowKernel,
                stacklevel=2,
            )

    def could_become_after_batch(self, other: FeatureMap) -> bool:
        """Return True if the first batch can turn this map into `other`.

        The first batch sets gamma if it is None. All other parameters must be equal.
        """
        return isinstance(other, RandomFourier) and replace(other, gamma=None) == self

    def max_mapped_columns(self, n_input_columns: int) -> int:
        """Return the number D of columns of mapped rows.

        n_input_columns: not used.
        """
        return self.n_features

    def check(self) -> None:
        """Raise InvalidParameter if a parameter is outside its range."""
        # Half of the features are cosines and half are sines, so their number is even.
        n = self.n_features
        gamma = self.gamma
        if not is_integer_within(n, 2, 2**31 - 1) or n % 2:
            raise InvalidParameter(
                f"n_features={n!r} of random_fourier; it must be an even integer ≥ 2 and below 2**31."
            )
        if self.kernel not in ("rbf", "laplace", "matern"):
            raise InvalidParameter(
                f"kernel={self.kernel!r} of random_fourier; it must be 'rbf', 'laplace' or 'matern'."
            )
        check_nu("random_fourier", self.nu)
        if gamma is not None and not (is_finite_number(gamma) and gamma > 0):
            raise InvalidParameter(f"gamma={gamma!r} of random_fourier; it must be a finite number > 0, or None.")
        if not isinstance(self.orthogonal, bool) or (self.orthogonal and self.kernel != "rbf"):
            raise InvalidParameter(
                f"orthogonal={self.orthogonal!r}; it must be a bool, and 'rbf' the kernel where true."
            )
        check_seed_or_none(self.seed)

    def apply(self, X: Rows, n_stream_features: int, names: tuple[str, ...] | None = None) -> np.ndarray:
        """Return the features (rows, D) float64 of rows: cosines and sines of random frequencies.

        A frequency ω has the two features cos ωᵀx and sin ωᵀx, times √(2/D), of a row x. They are 0
        if |ωᵀx| is above `FARTHEST`, because the angle then has no correct digits.

        X: (rows, features), dense or CSR. It may have fewer features than the stream.
        n_stream_features: number of features of the stream so far.
        names: not used.
        """
        # Orthogonal frequencies depend on the number of features for which they are drawn.
        n_features = n_stream_features if self.orthogonal else X.shape[1]
        omega = frequencies(self, self._drawn_features(n_features))
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

    def bytes(self, n_input_columns: int) -> int:
        """Return the memory of the map's random frequencies in bytes.

        They are a float64 matrix (features, D/2), where D is the number of columns of mapped rows.
        The number of features is rounded up to a power of 2 unless `orthogonal` is true.

        n_input_columns: number of features of the rows before mapping.
        """
        return 4 * self.n_features * self._drawn_features(n_input_columns)

    def _drawn_features(self, n_features: int) -> int:
        """Return for how many features to draw frequencies, at least `n_features`."""
        if self.orthogonal:
            return n_features
        # With the next power of 2, frequencies are seldom drawn again if a stream gets wider.
        return 1 << max(0, int(n_features) - 1).bit_length()


@lru_cache(maxsize=8)
def frequencies(fourier_map: RandomFourier, n_features: int) -> np.ndarray:
    """Return the random frequencies of a map, from which it computes cosines and sines.

    The frequencies are (n_features, D/2) float64, read-only. D is the number of columns of mapped
    rows. Row i depends only on the seed and i, unless the map's `orthogonal` is true.

    fourier_map: the map. Its gamma must be a number.
    n_features: number of features of the rows before mapping.
    """
    # The distribution of the frequencies is the Fourier transform of the kernel: normal for the RBF
    # kernel, multivariate t for the Matérn kernel, and Cauchy for the Laplace kernel.
    half = fourier_map.n_features // 2
    seed = fourier_map.seed
    gamma = float(fourier_map.gamma)  # type: ignore[arg-type]
    # Only the RBF kernel has an orthogonal variant, in which the frequencies are orthogonal.
    if fourier_map.orthogonal:
        omega: np.ndarray = np.sqrt(2.0 * gamma) * _draw_orthogonal_frequencies(n_features, half, seed)
    elif fourier_map.kernel == "rbf":
        omega = np.sqrt(2.0 * gamma) * draw_normals(seed, SPECTRUM, 0, n_features, half)
    elif fourier_map.kernel == "matern":
        omega = _draw_matern_frequencies(n_features, half, seed, gamma, fourier_map.nu)
    else:
        omega = gamma * draw_cauchys(seed, SPECTRUM, 0, n_features, half)
    omega.flags.writeable = False
    return omega


def _median_distance(X: Rows, kernel: str) -> float:
    """Return the median distance of two rows of X, squared unless the kernel is Laplace.

    The distance is |x − x'|₁ for the Laplace kernel, and |x − x'|² for the others. At most 200
    random rows are compared. For a single row, the result is 0.

    X: (rows, features), dense or CSR.
    """
    from sklearn.metrics.pairwise import euclidean_distances, manhattan_distances

    # The seed is fixed, so that the same rows give the same warning.
    order = np.random.default_rng(0).permutation(X.shape[0])
    chosen = np.sort(order[:MEDIAN_ROWS])
    if len(chosen) < 2:
        return 0.0

    # Convert the rows to a form in which scikit-learn computes their distances exactly.
    rows = X[chosen].astype(np.float64)
    if is_sparse(rows):
        # scikit-learn takes only 32-bit indices, so columns with values are renumbered from 0.
        used, at = np.unique(rows.indices, return_inverse=True)
        indices = at.astype(np.int32)
        indptr = rows.indptr.astype(np.int32)
        rows = sp.csr_matrix((rows.data, indices, indptr), shape=(len(chosen), len(used)))
    else:
        # Differences of rows far from 0 would lose digits, so the first row is subtracted.
        rows = rows - rows[0]

    with np.errstate(over="ignore", invalid="ignore"):
        if kernel == "laplace":
            distances = manhattan_distances(rows)
        else:
            distances = euclidean_distances(rows, squared=True)
    pairs = np.triu_indices(len(chosen), 1)
    return float(np.median(distances[pairs]))


def _draw_matern_frequencies(n_features: int, n_frequencies: int, seed: int, gamma: float, nu: float) -> np.ndarray:
    """Return frequencies (n_features, n_frequencies) of the Matérn kernel."""
    # They have a multivariate t distribution of 2ν degrees of freedom, times √(2γ).
    # For normals z and a χ² variable f of 2ν degrees of freedom, √(2ν / f) z is such a variable.
    # SPECTRUM and FREEDOM identify the two uses of random numbers, which must differ.
    uniforms = draw_uniforms(seed, FREEDOM, 0, n_frequencies)[:, 0]
    chi_squares = 2.0 * gammaincinv(nu, uniforms)
    normals = draw_normals(seed, SPECTRUM, 0, n_features, n_frequencies)
    return np.sqrt(4.0 * gamma * nu / chi_squares) * normals  # type: ignore[no-any-return]


def _draw_orthogonal_frequencies(n_features: int, n_frequencies: int, seed: int) -> np.ndarray:
    """Return frequencies of random Fourier features, orthogonal within blocks.

    The frequencies are the columns of the result (n_features, n_frequencies). A block has at most
    `n_features` columns. The lengths of the columns are distributed like the lengths of standard
    normal vectors. Raises InvalidParameter if `n_features` is above MOST_ORTHOGONAL.

    n_features: number of features.
    n_frequencies: number of frequencies.
    """
    if n_features > MOST_ORTHOGONAL:
        raise InvalidParameter(
            f"{n_features} features; the orthogonal variant takes at most {MOST_ORTHOGONAL}. Set orthogonal to false."
        )
    if not n_features:
        return np.zeros((0, n_frequencies))

    # Draw blocks of orthogonal columns of length 1, each block with its own random numbers.
    blocks = []
    for b, start in enumerate(range(0, n_frequencies, n_features)):
        size = min(n_features, n_frequencies - start)
        normals = draw_normals(seed, SPECTRUM + 100 * b, first_index=0, n_indices=n_features, draws_per_index=size)
        # Without the signs of R's diagonal, not all directions of Q would be equally likely.
        q, r = np.linalg.qr(normals)
        blocks.append(q * np.sign(np.diag(r)))

    # The squared lengths have a χ² distribution. Its inverse distribution function is applied to
    # uniform random numbers.
    uniforms = draw_uniforms(seed, LENGTHS, 0, n_frequencies)[:, 0]
    lengths = np.sqrt(2.0 * gammaincinv(n_features / 2.0, uniforms))
    return np.hstack(blocks) * lengths  # type: ignore[no-any-return]
