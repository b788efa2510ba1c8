"""FeatureMap, the base class of all feature maps, and its random numbers.

Random numbers are drawn by (seed, purpose, index), independent of earlier draws. The index is, for
example, the number of a row or feature. The random numbers of an index do not depend on which
other indices are drawn, or in which order. So a state depends only on its rows and the seed, and
not on how the rows are divided into batches.

The generator is Philox, a counter-based generator. Block i of its output is a function of the key
and i.

The Matérn kernel, whose frequencies are drawn here, has the parameter γ and the smoothness ν. For
two rows x and x', let s = √(4νγ)·|x − x'|. The kernel is

    2^(1−ν)/Γ(ν) · s^ν · K_ν(s)

where K_ν is the modified Bessel function of the second kind (Rasmussen and Williams 2006, eq.
4.14, with the length scale 1/√(2γ)). For ν = 1/2 the kernel is exp(−√(2γ)·|x − x'|). For ν → ∞ it
approaches the RBF kernel exp(−γ|x − x'|²).
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import gammaln, kve, ndtri

from stream_dr.batch.block import Block, Rows
from stream_dr.errors import InvalidParameter


@dataclass(frozen=True)
class FeatureMap(ABC):
    """Parameters of a feature map, and methods that map rows.

    There are two kinds of maps. A map with running statistics, such as `table`, maps the rows of
    tables by the functions in `stream_dr/feature_maps/table.py`. Any other map has the method
    `apply(X, n_stream_features, names)`, which returns the mapped rows (rows, mapped columns) of
    rows X, dense or CSR. `n_stream_features` is the
    number of features of the stream so far. `names` are the names of the columns, or None.

    Attributes
    ----------
    by_name : bool
        True if columns are matched by name, so that batches may have different columns.
    sparse : bool
        True if mapped rows are CSR.
    learns : bool
        True if the map has running statistics.
    """

    by_name: ClassVar[bool] = False
    sparse: ClassVar[bool] = False
    learns: ClassVar[bool] = False

    @property
    def first_row_fixes_width(self) -> bool:
        """True if later rows cannot have more features than the first row."""
        return False

    @property
    def has_final_parameters(self) -> bool:
        """True if all parameters of the map are final.

        False if a parameter is computed from the first batch.
        """
        return True

    def with_first_batch_parameters(self, block: Block) -> "FeatureMap":
        """Return the map with its final parameters.

        Parameters without a value are computed from the first batch.

        block: the first batch.
        """
        return self

    def warn_if_unsuitable(self, X: Rows) -> None:  # noqa: B027
        """Warn if the map does not suit the data.

        X: (rows, features), the first rows of the stream.
        """

    def could_become_after_batch(self, other: "FeatureMap") -> bool:
        """Return True if this map can become `other`.

        After the first batch, `with_first_batch_parameters` replaces a map by a map with final
        parameters. So the two maps may differ only in parameters that are computed from the first batch.

        other: a map with final parameters.
        """
        return False

    @abstractmethod
    def max_mapped_columns(self, n_input_columns: int) -> int:
        """Return the largest number of columns of mapped rows.

        n_input_columns: number of features of the rows before mapping, 0 if unknown.
        """

    @abstractmethod
    def check(self) -> None:
        """Raise InvalidParameter if a parameter is outside its range."""

    @abstractmethod
    def bytes(self, n_input_columns: int) -> int:
        """Return the memory of the feature map in bytes.

        The memory of the rows is not counted.

        n_input_columns: number of features of the rows before mapping.
        """


def draw_uniforms(seed: int, purpose_id: int, first_index: int, n_indices: int, draws_per_index: int = 1) -> np.ndarray:
    """Return uniform random numbers in (0, 1).

    The result is (n_indices, draws_per_index) float64. Row i belongs to the index first_index + i,
    and does not depend on other rows. An index is, for example, the number of a feature.

    seed: seed from the user.
    purpose_id: number that identifies the use of the random numbers. Two uses with one seed get
        different random numbers.
    first_index: first index.
    n_indices: number of indices.
    draws_per_index: number of random numbers for each index.
    """
    # The generator draws blocks of four numbers. Each index has its own blocks, as many as it needs
    # (rounded up). The generator counts blocks, so it starts directly at the first index's block.
    blocks = -(-draws_per_index // 4)
    width = 4 * blocks
    # The key has 128 bits: the seed in the lower half, and the purpose in the upper half.
    key = (seed % 2**64) | (purpose_id << 64)
    philox = np.random.Philox(key=key, counter=first_index * blocks)
    drawn = philox.random_raw(n_indices * width).reshape(n_indices, width)

    # Take the 53 highest bits of each number, as many as a float64 represents.
    # Half a step is added, so that no result is 0 or 1.
    high = drawn[:, :draws_per_index] >> np.uint64(11)
    return (high.astype(np.float64) + 0.5) * 2.0**-53


def draw_normals(seed: int, purpose_id: int, first_index: int, n_indices: int, draws_per_index: int = 1) -> np.ndarray:
    """Return standard normal random numbers.

    The result is (n_indices, draws_per_index) float64. Row i belongs to the index first_index + i,
    and does not depend on other rows.

    seed, purpose_id: they decide the numbers. Each use of random numbers has another purpose_id.
    first_index, n_indices: indices to draw numbers for, for example numbers of features.
    draws_per_index: number of random numbers for each index.
    """
    uniforms = draw_uniforms(seed, purpose_id, first_index, n_indices, draws_per_index)
    normals: np.ndarray = ndtri(uniforms)
    return normals


def draw_cauchys(seed: int, purpose_id: int, first_index: int, n_indices: int, draws_per_index: int = 1) -> np.ndarray:
    """Return standard Cauchy random numbers.

    The result is (n_indices, draws_per_index) float64. Row i belongs to the index first_index + i,
    and does not depend on other rows. The parameters are those of `draw_normals`.
    """
    uniforms = draw_uniforms(seed, purpose_id, first_index, n_indices, draws_per_index)
    return np.tan(np.pi * (uniforms - 0.5))


def is_finite_number(value: Any) -> bool:
    """Return True if a value is a finite number.

    The number must be finite as a float64. A bool does not count as a number.
    """
    # float() raises OverflowError for an integer beyond the largest float.
    try:
        real = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
        return real and math.isfinite(value)
    except OverflowError:
        return False


def is_integer_within(value: object, least: int, most: int) -> bool:
    """Return True if a value is an integer, no bool, and within limits.

    least, most: smallest and largest allowed integer.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        return False
    return bool(least <= value <= most)


def check_seed_or_none(seed: object) -> None:
    """Raise InvalidParameter unless a seed is valid.

    A valid seed is an integer from 0 to 2⁶³ − 1, or None. None stands for 0, so that results can
    be repeated.
    """
    if seed is not None and not is_integer_within(seed, 0, 2**63 - 1):
        raise InvalidParameter(
            f"random_state={seed!r}; it must be an integer ≥ 0 and below 2**63, or None, which stands for 0."
        )


LARGEST_NU = 100.0
"""Largest allowed smoothness ν.

For larger values the kernel differs from the RBF kernel by less than 1 %.
"""


def check_nu(map_name: str, nu: object) -> None:
    """Raise InvalidParameter unless nu is a valid smoothness.

    A valid smoothness is a number above 0 and at most LARGEST_NU.

    map_name: name of the feature map, for the message.
    """
    if not is_finite_number(nu) or not 0 < float(nu) <= LARGEST_NU:  # type: ignore[arg-type]
        raise InvalidParameter(
            f"nu={nu!r} of {map_name}; it must be above 0 and at most {LARGEST_NU:g}. Past it, take rbf."
        )


def matern(squared_distances: np.ndarray, gamma: float, nu: float) -> np.ndarray:
    """Return the Matérn kernel of pairs of rows.

    The result has the shape of `squared_distances`.

    squared_distances: squared Euclidean distances of the pairs, of any shape.
    gamma: parameter γ. For ν → ∞ the kernel is the RBF kernel exp(−γ|x − x'|²).
    nu: smoothness ν.
    """
    # For the distance d, let s = √(4νγ) d. The kernel is 2^(1−ν) / Γ(ν) · s^ν · K_ν(s), where K_ν
    # is the modified Bessel function. Compute its logarithm, because the factors may overflow.
    s = np.sqrt(4.0 * nu * gamma * squared_distances)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        constant = (1.0 - nu) * np.log(2.0) - gammaln(nu)
        # `kve` is the Bessel function times exp(s), so s is subtracted again.
        logarithm = constant + nu * np.log(s) + np.log(kve(nu, s)) - s
        values = np.exp(logarithm)

    # Where this fails, take the limit: 1 for rows near each other, 0 for rows far from each other.
    limits = np.where(s < 1.0, 1.0, 0.0)
    computed = np.isfinite(values) & (s > 0.0)
    return np.where(computed, values, limits)
