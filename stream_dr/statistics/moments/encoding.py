"""Encoding of targets as k numeric columns for cross sums.

Cross sums are products of features and target columns, summed over the rows. The encodings are:

- "none": targets are not read (unsupervised).
- "indicator": a label's column is 1 in rows that have the label, and 0 elsewhere. Continuous
  targets are not changed.
- "partial": as "indicator", for one label per row. A row without a label is learned with zeros.
- "zhou": a label's column is 1/√m in rows that have the label, and 0 elsewhere. m is the row's
  number of labels [2S, HSL with Zhou's Laplacian].
- `Fourier`: random Fourier features of continuous targets, which approximate an RBF kernel [SRP;
  mathematics §2].

EncodedTargets stores labels in sparse form, as one code for each label of a row and one value for
each row. So a batch costs O(labels of all rows).

The random numbers of a Fourier column depend only on the seed and the number of the column. So two
machines use equal numbers. If targets have more entries, the numbers of the first entries are the
same.
"""

from typing import NamedTuple

import numpy as np

from stream_dr.batch.targets import Targets, select_entries
from stream_dr.errors import InvalidParameter
from stream_dr.statistics.protocol import register_nested_state

ENCODINGS = ("none", "indicator", "partial", "zhou")


@register_nested_state
class Fourier(NamedTuple):
    """Random Fourier features of continuous targets [mathematics §2].

    A target y with `width` entries becomes the `size` numbers √(2/size) cos(ωᵀy + b). The entries
    of ω (width, size) are normal random numbers of standard deviation 1/bandwidth. The entries of
    b (size,) are uniform random numbers from 0 to 2π. Labels are encoded as indicators instead.

    Attributes
    ----------
    size : int
        Number of columns.
    bandwidth : float
        Parameter σ of the kernel exp(−|y − y'|²/(2σ²)) of two targets y and y', which the columns
        approximate. It has the units of the targets.
    seed : int
        Seed of the random numbers.
    """

    size: int
    bandwidth: float = 1.0
    seed: int = 0

    def draw_frequencies_and_phases(self, width: int) -> tuple[np.ndarray, np.ndarray]:
        """Return random frequencies (width, size) and phases (size,).

        Column j of the frequencies and phase j depend only on the seed and j.

        width: number of entries of a target.
        """
        omega = np.empty((width, self.size))
        phase = np.empty(self.size)
        for j in range(self.size):
            random = np.random.default_rng((self.seed, j))
            phase[j] = random.uniform(0.0, 2.0 * np.pi)
            omega[:, j] = random.standard_normal(width) / self.bandwidth
        return omega, phase

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Return the random Fourier features (rows, size) float64 of targets.

        values: (rows, entries of a target) continuous targets.
        """
        omega, phase = self.draw_frequencies_and_phases(values.shape[1])
        fourier_features: np.ndarray = np.sqrt(2.0 / self.size) * np.cos(values @ omega + phase)
        return fourier_features


Encoding = str | Fourier


class RowSets(NamedTuple):
    """Label sets of the rows of a batch.

    A label set is a distinct combination of labels.

    Attributes
    ----------
    numbers : (rows,) int64
        Index of each row's label set, −1 for rows without labels.
    new : dict
        Index of each label set that no earlier batch had. The keys are the label sets, as tuples
        of label indices.
    """

    numbers: np.ndarray
    new: dict[tuple[int, ...], int]


class EncodedTargets(NamedTuple):
    """Targets of a batch as k numeric columns.

    Labels are stored in sparse form, continuous targets as an array.

    Attributes
    ----------
    codes : (entries,) int32
        Column index of each label of each row, row after row.
    indptr : (rows + 1,) int64 or None
        Row i has the labels codes[indptr[i]:indptr[i + 1]]. None if every row has exactly one
        label.
    row_values : (rows,) or None
        Value that each row has in the columns of its labels. None if all values are 1.
    values : (rows, k) float64 or None
        Continuous targets. None for labels.
    sets : RowSets or None
        Label set (distinct combination of labels) of each row. None if no sums for label sets are
        stored.
    """

    codes: np.ndarray
    indptr: np.ndarray | None = None
    row_values: np.ndarray | None = None
    values: np.ndarray | None = None
    sets: RowSets | None = None


def check_encoding(encoding: Encoding) -> None:
    """Raise InvalidParameter for an unknown encoding."""
    if isinstance(encoding, Fourier):
        if encoding.size < 1 or not encoding.bandwidth > 0:
            raise InvalidParameter(f"{encoding}: size must be at least 1 and bandwidth above 0.")
    elif encoding not in ENCODINGS:
        raise InvalidParameter(f"encoding={encoding!r}; it must be one of {', '.join(ENCODINGS)} or a Fourier.")


def encode_as_columns(targets: Targets, encoding: Encoding, label_columns: np.ndarray) -> EncodedTargets:
    """Encode targets as numeric columns.

    Every row must have a target, unless the encoding is "partial".

    label_columns: (labels of the batch,) int32, the index of each label among all labels learned
        so far.
    """
    if targets.values is not None:
        values = encoding(targets.values) if isinstance(encoding, Fourier) else targets.values
        return EncodedTargets(np.empty(0, dtype=np.int32), values=values)
    if encoding == "partial" and targets.present is not None:
        indptr = np.concatenate(([0], np.cumsum(targets.present))).astype(np.int64)
        return EncodedTargets(label_columns[targets.codes[targets.present]], indptr)

    codes = label_columns[targets.codes]
    if targets.indptr is None or encoding != "zhou":
        return EncodedTargets(codes, targets.indptr)
    number = np.diff(targets.indptr)
    return EncodedTargets(codes, targets.indptr, 1.0 / np.sqrt(np.maximum(number, 1)))


def dense_encoded_rows(encoded: EncodedTargets, n_rows: int, n_target_columns: int) -> np.ndarray:
    """Return encoded targets (n_rows, n_target_columns) as a dense array."""
    if encoded.values is not None:
        return encoded.values
    out = np.zeros((n_rows, n_target_columns))
    if encoded.indptr is None:
        out[np.arange(n_rows), encoded.codes] = 1.0
        return out
    number = np.diff(encoded.indptr)
    values = 1.0 if encoded.row_values is None else np.repeat(encoded.row_values, number)
    out[np.repeat(np.arange(n_rows), number), encoded.codes] = values
    return out


def slice_encoded_rows(encoded: EncodedTargets, start: int, stop: int) -> EncodedTargets:
    """Return rows start:stop of encoded targets."""
    values = None if encoded.values is None else encoded.values[start:stop]
    row_values = None if encoded.row_values is None else encoded.row_values[start:stop]
    if values is not None:
        return EncodedTargets(encoded.codes, values=values)
    if encoded.indptr is None:
        return EncodedTargets(encoded.codes[start:stop], None, row_values)
    indptr = encoded.indptr[start : stop + 1]
    return EncodedTargets(encoded.codes[indptr[0] : indptr[-1]], indptr - indptr[0], row_values)


def take_encoded_rows(encoded: EncodedTargets, row_indices: np.ndarray) -> EncodedTargets:
    """Return some rows of encoded targets.

    row_indices: int64 indices of the rows.
    """
    if encoded.values is not None:
        return encoded._replace(values=encoded.values[row_indices])
    row_values = None if encoded.row_values is None else encoded.row_values[row_indices]
    sets = None if encoded.sets is None else encoded.sets._replace(numbers=encoded.sets.numbers[row_indices])
    if encoded.indptr is None:
        return EncodedTargets(encoded.codes[row_indices], None, row_values, sets=sets)
    indptr, places = select_entries(encoded.indptr, row_indices)
    return EncodedTargets(encoded.codes[places], indptr, row_values, sets=sets)
