"""Encoding of targets as k numeric columns.

Their cross sums with the features are stored.

- "none": unsupervised, targets are not read.
- "indicator": labels are 1 where a row has the label. Continuous targets are their values.
- "zhou": labels are 1/√m where a row has the label, m the row's number of labels [2S, HSL with
  Zhou's Laplacian]. A row without labels has zeros.
- `Fourier`: ψ(y) = √(2/q) cos(ωᵀy + b), random features of an RBF kernel on continuous y [SRP;
  mathematics §2].

Labels stay sparse, one code a label and one value a row, so a batch costs O(its labels). ω and b
are drawn from (seed, column index), so states of different machines, and of a target that is
wider, agree on them without exchanging anything.
"""

from typing import NamedTuple

import numpy as np

from stream_dr.errors import InvalidParameter, TargetKindMismatch
from stream_dr.statistics.protocol import nested_state
from stream_dr.targets.targets import Targets

ENCODINGS = ("none", "indicator", "zhou")


@nested_state
class Fourier(NamedTuple):
    """Random Fourier features of continuous targets [mathematics §2].

    ψ(y) = √(2/size) cos(ωᵀy + b) with ω ~ N(0, I/bandwidth²), b ~ U(0, 2π). Labels stay their
    indicator: on one label a row, an RBF kernel of the indicator is the delta kernel up to a
    factor.

    Attributes
    ----------
    size : int
        Number of columns q.
    bandwidth : float
        σ of exp(−|y − y'|²/(2σ²)), in the units of y.
    seed : int
        Seed of the draws.
    """

    size: int
    bandwidth: float = 1.0
    seed: int = 0

    def draw(self, width: int) -> tuple[np.ndarray, np.ndarray]:
        """Return ω (width, size) and b (size,), column j drawn from (seed, j)."""
        omega, phase = np.empty((width, self.size)), np.empty(self.size)
        for j in range(self.size):
            random = np.random.default_rng((self.seed, j))
            phase[j] = random.uniform(0.0, 2.0 * np.pi)
            omega[:, j] = random.standard_normal(width) / self.bandwidth
        return omega, phase

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Return ψ of values (rows, width) as (rows, size) float64."""
        omega, phase = self.draw(values.shape[1])
        return np.sqrt(2.0 / self.size) * np.cos(values @ omega + phase)


Encoding = str | Fourier


class Encoded(NamedTuple):
    """The targets of one batch as columns, sparse for labels.

    Attributes
    ----------
    codes : (entries,) int32
        Columns, row by row.
    indptr : (rows + 1,) int64 or None
        Row i's codes are codes[indptr[i]:indptr[i + 1]]. None if every row has just one.
    row_values : (rows,) or None
        Value of each of the row's entries. None for 1.
    values : (rows, k) float64 or None
        Continuous targets.
    """

    codes: np.ndarray
    indptr: np.ndarray | None = None
    row_values: np.ndarray | None = None
    values: np.ndarray | None = None


def check_encoding(encoding: Encoding) -> None:
    """Raise InvalidParameter for an unknown encoding."""
    if isinstance(encoding, Fourier):
        if encoding.size < 1 or not encoding.bandwidth > 0:
            raise InvalidParameter(f"{encoding}: size must be at least 1 and bandwidth above 0.")
    elif encoding not in ENCODINGS:
        raise InvalidParameter(f"encoding={encoding!r}; it must be one of {', '.join(ENCODINGS)} or a Fourier.")


def check_encoding_kind(encoding: Encoding, kind: str) -> None:
    """Raise TargetKindMismatch if targets of this kind have no such encoding."""
    if encoding == "zhou" and kind == "continuous":
        raise TargetKindMismatch("continuous targets were given; this encoding needs labels: class or multilabel.")


def encode(targets: Targets, encoding: Encoding, columns: np.ndarray) -> Encoded:
    """Return targets (every row present) as columns.

    columns: (labels of the batch,) int32 maps the batch's codes to ours.
    """
    if targets.values is not None:
        values = encoding(targets.values) if isinstance(encoding, Fourier) else targets.values
        return Encoded(np.empty(0, dtype=np.int32), values=values)
    codes = columns[targets.codes]
    if targets.indptr is None or encoding != "zhou":
        return Encoded(codes, targets.indptr)
    number = np.diff(targets.indptr)
    return Encoded(codes, targets.indptr, 1.0 / np.sqrt(np.maximum(number, 1)))


def dense_columns(encoded: Encoded, start: int, stop: int, k: int) -> np.ndarray:
    """Return rows start:stop of the encoded targets as (rows, k) float64."""
    if encoded.values is not None:
        return encoded.values[start:stop]
    out = np.zeros((stop - start, k))
    if encoded.indptr is None:
        out[np.arange(stop - start), encoded.codes[start:stop]] = 1.0
        return out
    number = np.diff(encoded.indptr[start : stop + 1])
    row = np.repeat(np.arange(stop - start), number)
    values = 1.0 if encoded.row_values is None else np.repeat(encoded.row_values[start:stop], number)
    out[row, encoded.codes[encoded.indptr[start] : encoded.indptr[stop]]] = values
    return out


def encoded_rows(encoded: Encoded, start: int, stop: int) -> Encoded:
    """Return rows start:stop of encoded targets."""
    values = None if encoded.values is None else encoded.values[start:stop]
    row_values = None if encoded.row_values is None else encoded.row_values[start:stop]
    if values is not None:
        return Encoded(encoded.codes, values=values)
    if encoded.indptr is None:
        return Encoded(encoded.codes[start:stop], None, row_values)
    indptr = encoded.indptr[start : stop + 1]
    return Encoded(encoded.codes[indptr[0] : indptr[-1]], indptr - indptr[0], row_values)
