"""CentredPart: weight, mean and centred second moments of rows [mathematics §1].

Two parts a and b join as Chan, Golub and LeVeque have it, C = C_a + C_b + (N_a N_b / N) δ δᵀ with
δ = x̄_b − x̄_a. Taking b out is the same with its weight negative.

A mean is stored as two numbers, high and low. At an offset of 1e9 the difference of two means is
otherwise known to 1e-7 only, and with it every joining term. With two numbers sums are right to
1e-15 at any offset.
"""

from typing import NamedTuple

import numpy as np

from stream_dr.checks import check_array_shapes, check_at_least, check_equal, check_finite_arrays, field_error
from stream_dr.statistics.protocol import nested_state


@nested_state
class CentredPart(NamedTuple):
    """Centred sums of rows (n, d) with k target columns, float64.

    Attributes
    ----------
    exact : bool
        True if the whole scatter is stored.
    weight : float
        N.
    mean, low : (d,)
        The mean is their sum.
    diagonal : (d,), or (0,) if exact
    scatter : (d, d) if exact, or (0, 0)
    cross : (d, k)
        Σ w (x − x̄)(y − ȳ)ᵀ.
    nonzero : (d,)
        Number of rows of weight that are not 0 there, NaN if unknown. A column is known to be 0
        again once these were all unlearned.
    """

    exact: bool
    weight: float
    mean: np.ndarray
    low: np.ndarray
    diagonal: np.ndarray
    scatter: np.ndarray
    cross: np.ndarray
    nonzero: np.ndarray = np.zeros(0)

    def check(self, width: int, columns: int, exact: bool) -> None:
        """Raise DamagedFile unless it has these numbers of features and target columns.

        NaN is allowed in nonzero.
        """
        check_equal(self, "exact", exact)
        check_at_least(self, 0.0, "weight")
        square = (width, width) if exact else (0, 0)
        check_array_shapes(
            self, np.float64, mean=(width,), low=(width,), diagonal=(0 if exact else width,), scatter=square
        )
        check_array_shapes(self, np.float64, cross=(width, columns), nonzero=(width if len(self.nonzero) else 0,))
        check_finite_arrays(self, "mean", "low", "diagonal", "scatter", "cross")
        if (self.nonzero < 0.0).any() or np.isinf(self.nonzero).any():
            raise field_error(self, "nonzero", "negative or infinite", "at least 0, or NaN")

    @property
    def counts(self) -> np.ndarray:
        """`nonzero` (d,), or NaN if the state does not have it."""
        return self.nonzero if len(self.nonzero) == len(self.mean) else np.full(len(self.mean), np.nan)

    @property
    def variances(self) -> np.ndarray:
        """Diagonal (d,) of the scatter. Read only."""
        return np.diagonal(self.scatter) if self.exact else self.diagonal

    def scaled(self, factor: float) -> "CentredPart":
        """Return the part with every sum, not the mean, multiplied by factor."""
        sums = (self.diagonal * factor, self.scatter * factor, self.cross * factor)
        return CentredPart(self.exact, self.weight * factor, self.mean, self.low, *sums, self.nonzero)

    def aligned(self, width: int, columns: np.ndarray, total: int) -> "CentredPart":
        """Return the part with `width` features and `total` target columns.

        Column j becomes columns[j].
        """
        cross = np.zeros((width, total))
        cross[: len(self.cross), columns] = self.cross
        mean, low = padded(self.mean, (width,)), padded(self.low, (width,))
        diagonal = self.diagonal if self.exact else padded(self.diagonal, (width,))
        scatter = padded(self.scatter, (width, width)) if self.exact else self.scatter
        return CentredPart(self.exact, self.weight, mean, low, diagonal, scatter, cross, padded(self.counts, (width,)))

    def clamped(self) -> "CentredPart":
        """Return the part with no variance below zero.

        Columns that are 0 in every remaining row become exact zeros.
        """
        part = self._replace(diagonal=np.maximum(self.diagonal, 0.0), scatter=self.scatter.copy())
        if self.exact:
            np.fill_diagonal(part.scatter, np.maximum(np.diagonal(part.scatter), 0.0))
        zero = np.flatnonzero(self.counts == 0.0)
        if len(zero):
            part = part._replace(mean=self.mean.copy(), low=self.low.copy(), cross=self.cross.copy())
            for sums in (part.mean, part.low, part.cross, part.scatter if self.exact else part.diagonal):
                sums[zero] = 0.0
            part.scatter[:, zero if self.exact else []] = 0.0
        return part

    def join(self, other: "CentredPart", target_step: np.ndarray | None, sign: float = 1.0) -> "CentredPart":
        """Return the sums of both. With sign −1 those without other.

        Both have the same width, columns and kind of scatter. A part without weight is an exact
        identity. target_step: (k,) other's ȳ − ours. Costs O(d² + d k).
        """
        a, b = self, other
        if b.weight == 0.0 or a.weight == 0.0:
            return a if b.weight == 0.0 else b

        total = a.weight + sign * b.weight
        if not total > 0.0:
            return empty_part(len(a.mean), a.cross.shape[1], a.exact)
        step = (b.mean - a.mean) + (b.low - a.low)
        mean, low = dd_add(a.mean, a.low, sign * (b.weight / total) * step)

        factor = sign * (a.weight / total) * b.weight
        cross = a.cross + sign * b.cross
        if target_step is not None:
            cross += factor * np.outer(step, target_step)

        scatter, diagonal = a.scatter, a.diagonal
        if a.exact:
            scatter = a.scatter + sign * b.scatter + factor * np.outer(step, step)
        else:
            diagonal = a.diagonal + sign * b.diagonal + factor * step**2
        return CentredPart(a.exact, total, mean, low, diagonal, scatter, cross, a.counts + sign * b.counts)


def empty_part(width: int, columns: int, exact: bool) -> CentredPart:
    """Return the sums of no rows."""
    diagonal, scatter = np.zeros(0 if exact else width), np.zeros((width, width) if exact else (0, 0))
    mean, low, nonzero = np.zeros((3, width))
    return CentredPart(exact, 0.0, mean, low, diagonal, scatter, np.zeros((width, columns)), nonzero)


def dd_add(high: np.ndarray, low: np.ndarray, step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return high + low + step as high and low again.

    Nothing is lost (Knuth's two-sum).
    """
    total = high + step
    added = total - high
    low = low + ((high - (total - added)) + (step - added))
    high = total + low
    return high, low - (high - total)


def padded(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return array in the corner of zeros of a larger shape.

    The array itself is returned if it has that shape.
    """
    if array.shape == shape:
        return array
    out = np.zeros(shape, dtype=array.dtype)
    out[tuple(slice(n) for n in array.shape)] = array
    return out
