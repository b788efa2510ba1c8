"""CentredSums: weight, mean and centred second moments of dense rows, merged batch by batch [MATH §1].

Remembered: N, x̄ (d,), Σ w (x − x̄)(x − x̄)ᵀ as (d, d) or its diagonal (d,), and the cross sums Σ w (x − x̄) yᵀ (d, k).
A chunk of rows is centred on its own mean and joined by Chan, Golub and LeVeque's formula; the joining term is one more
row of the matrix product, so it costs nothing.

Cost: d² (or d) + d k multiplications a row; temporary memory one chunk of 8 MB.

Why this way: a mean is kept as two numbers, high and low. At offset 1e9 the difference of two batches' means is otherwise
known to 1e-7 only, and with it every joining term.
"""

from typing import NamedTuple

import numpy as np

from stream_dr.accumulate.protocol import nested_state

CHUNK_VALUES = 1 << 20
"""Values of a dense batch that are centred at once (8 MB)."""


@nested_state
class CentredPart(NamedTuple):
    """What CentredSums remembers, frozen. All float64.

    weight: N. mean, low: (d,), the mean is their sum. diagonal: (d,), empty where scatter is kept. scatter: (d, d), or
    (0, 0). cross: (d, k).
    """

    weight: float
    mean: np.ndarray
    low: np.ndarray
    diagonal: np.ndarray
    scatter: np.ndarray
    cross: np.ndarray

    @property
    def exact(self) -> bool:
        """Whether the whole scatter is kept."""
        return len(self.scatter) == len(self.mean)

    @property
    def variances(self) -> np.ndarray:
        """(d,) the diagonal of the scatter."""
        return np.diagonal(self.scatter).copy() if self.exact else self.diagonal


class Centring(NamedTuple):
    """A chunk of rows made ready for one product: rows (b + 1, d) are √w (x − own mean), and last the joining row."""

    rows: np.ndarray
    weight: float
    step: np.ndarray
    share: float
    root: float


def empty_part(width: int, columns: int, exact: bool) -> CentredPart:
    """Sums of no rows."""
    return CentredPart(
        0.0,
        np.zeros(width),
        np.zeros(width),
        np.zeros(0 if exact else width),
        np.zeros((width, width) if exact else (0, 0)),
        np.zeros((width, columns)),
    )


class CentredSums:
    """The mutable side of CentredPart."""

    def __init__(self, part: CentredPart) -> None:
        """Goes on from `part`, whose arrays it copies."""
        self.weight = part.weight
        self.mean, self.low = part.mean.copy(), part.low.copy()
        self.diagonal, self.scatter, self.cross = part.diagonal.copy(), part.scatter.copy(), part.cross.copy()

    @property
    def exact(self) -> bool:
        """Whether the whole scatter is kept."""
        return len(self.scatter) == len(self.mean)

    def freeze(self) -> CentredPart:
        """The sums so far, copied."""
        arrays = (self.mean, self.low, self.diagonal, self.scatter, self.cross)
        return CentredPart(self.weight, *(a.copy() for a in arrays))

    def scaled(self, factor: float) -> None:
        """Multiply every sum, not the mean, by factor."""
        self.weight *= factor
        for sums in (self.diagonal, self.scatter, self.cross):
            sums *= factor

    def grow(self, width: int, columns: int) -> None:
        """Room for more features (constant zero so far) and more target columns."""
        old, k = self.cross.shape
        if (width, columns) == (old, k):
            return
        self.cross = padded(self.cross, (width, columns))
        if width != old:
            exact = self.exact
            self.mean, self.low = padded(self.mean, (width,)), padded(self.low, (width,))
            self.scatter = padded(self.scatter, (width, width)) if exact else self.scatter
            self.diagonal = self.diagonal if exact else padded(self.diagonal, (width,))

    def centre(self, X: np.ndarray, weights: np.ndarray | None) -> Centring | None:
        """Rows (b, d) of any float type, centred on their own mean as float64; None where they weigh nothing."""
        n = float(len(X)) if weights is None else float(weights.sum())
        if not n > 0.0:
            return None
        high, low = chunk_mean(X, weights, n)
        rows = np.empty((len(X) + 1, X.shape[1]))
        np.subtract(X, high, out=rows[:-1], casting="unsafe", dtype=np.float64)
        rows[:-1] -= low
        if weights is not None:
            rows[:-1] *= np.sqrt(weights)[:, None]
        step = (high - self.mean) + (low - self.low)
        if self.weight == 0.0:
            self.mean, self.low, step = high.copy(), low.copy(), np.zeros_like(low)
        total = self.weight + n
        root = float(np.sqrt(self.weight / total * n))
        rows[-1] = root * step
        return Centring(rows, n, step, n / total, root)

    def join(self, centring: Centring, targets: np.ndarray | None) -> None:
        """Add a centred chunk, and its targets (b + 1, k): √w y, and last root · (ȳ of the chunk − ȳ so far)."""
        rows = centring.rows
        if targets is not None:
            self.cross += rows.T @ targets
        if self.exact:
            self.scatter += rows.T @ rows
        else:
            self.diagonal += np.einsum("ij,ij->j", rows, rows)
        self.mean, self.low = moved(self.mean, self.low, centring.share * centring.step)
        self.weight += centring.weight


def chunk_mean(X: np.ndarray, weights: np.ndarray | None, n: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean of rows (b, d) as high + low (d,), right to 1e-16 of the rows' spread rather than of their size."""
    high = X[0].astype(np.float64) if weights is None else X[int(np.argmax(weights))].astype(np.float64)
    shifted = np.subtract(X, high, dtype=np.float64)
    step = shifted.mean(axis=0) if weights is None else (weights @ shifted) / n
    high, low = moved(high, np.zeros_like(high), step)
    rest = np.subtract(X, high, dtype=np.float64)
    step = rest.mean(axis=0) if weights is None else (weights @ rest) / n
    return moved(high, np.zeros_like(low), step)


def moved(high: np.ndarray, low: np.ndarray, step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """high + low + step as high and low again, without loss (Knuth's two-sum)."""
    total = high + step
    kept = total - high
    low = low + ((high - (total - kept)) + (step - kept))
    high = total + low
    return high, low - (high - total)


def padded(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """array in the corner of zeros of a larger shape."""
    out = np.zeros(shape, dtype=array.dtype)
    out[tuple(slice(n) for n in array.shape)] = array
    return out


def joined(a: CentredPart, b: CentredPart, target_step: np.ndarray | None, sign: float = 1.0) -> CentredPart:
    """Sums of both; with sign −1 those of a without b, which a contains. target_step: ȳ_b − ȳ_a (k,).

    Both have the same width and columns. The empty part is an exact identity.
    """
    if b.weight == 0.0:
        return a
    if a.weight == 0.0:
        return b
    total = a.weight + sign * b.weight
    step = (b.mean - a.mean) + (b.low - a.low)
    mean, low = moved(a.mean, a.low, sign * (b.weight / total) * step)
    factor = sign * (a.weight / total) * b.weight
    cross = a.cross + sign * b.cross
    if target_step is not None:
        cross += factor * np.outer(step, target_step)
    if a.exact:
        scatter, diagonal = a.scatter + sign * b.scatter + factor * np.outer(step, step), a.diagonal
    else:
        scatter, diagonal = a.scatter, a.diagonal + sign * b.diagonal + factor * step**2
    return CentredPart(total, mean, low, diagonal, scatter, cross)
