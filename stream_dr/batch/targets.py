"""Targets: the parsed labels or numbers of a batch's rows.

There are three kinds: `class` (one label per row), `multilabel` (a set of labels per row, which
may be empty) and `continuous` (k numbers per row).

The distinct labels of a batch are stored in order of appearance. Each row has a code for each of
its labels. The code is the index of the label, and −1 for a row without a label. So the size of a
batch does not depend on the number of labels in the stream. Two batches may have different codes
for the same label. So code that combines batches compares the labels themselves.

There are two ways to the codes, which cost O(rows + labels):

- `encode_plain_labels` encodes strings, integers or bools of Python by a dict.
- `label_column` makes an Arrow column of any other labels, and checks them. `encode_labels`
  encodes the column.

A row may have no target (null). Supervised accumulators skip and count rows without a target.
"""

from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Any, Literal, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from stream_dr.batch.block import Block, is_valid_unicode
from stream_dr.batch.matrix import is_string_type, view_of_numbers
from stream_dr.batch.rows import infer_array
from stream_dr.batch.sparse import row_of_entry
from stream_dr.batch.table import LARGEST
from stream_dr.errors import InvalidTargets, TargetKindMismatch, did_you_mean

Label = str | int | bool

INTEGERS = (-(2**63), 2**64 - 1)
"""Smallest and largest integer that can be a label.

Arrow columns and JSON readers cannot represent other integers.
"""

MANY_ROWS = 32
"""Number of integers from which Arrow encodes an array faster than a dict."""


def label_column(labels: Any) -> pa.Array:
    """Return labels as an Arrow column of strings, integers or bools.

    Whole floats become integers. None, NaN and the missing values of pandas become null. Raises
    InvalidTargets for labels of different or other types, for integers out of range, and for
    strings with half of a surrogate pair, which is half a character.

    labels: one label for each row, in an array (rows,), a list, or a column of another library.
    """
    # Arrow reads only numbers in the byte order of this machine.
    if isinstance(labels, np.ndarray) and not labels.dtype.isnative:
        labels = labels.astype(labels.dtype.newbyteorder("="))
    # Arrow infers int64 for integers, which overflows for those from 2**63 on. uint64 holds these.
    try:
        try:
            column = infer_array(labels)
        except OverflowError:
            column = pa.array(labels, pa.uint64(), from_pandas=True)
    except (pa.ArrowException, OverflowError, UnicodeError, TypeError) as e:
        raise _label_error(labels) from e
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    # A column without any label gets the null type, whatever type it had before.
    if column.null_count == len(column):
        return pa.nulls(len(column))
    if pa.types.is_floating(column.type):
        return _whole_numbers(column, labels)
    if not is_label_type(column.type):
        raise _label_error(labels)
    return column


def is_label_type(arrow_type: pa.DataType) -> bool:
    """Return True for Arrow types of labels: strings, integers, bools and categories of these."""
    types = pa.types
    if types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    checks = (is_string_type, types.is_integer, types.is_boolean, types.is_null)
    return any(check(arrow_type) for check in checks)


def encode_labels(column: pa.Array) -> tuple[tuple[Label, ...], np.ndarray]:
    """Return a column's distinct labels, and an int32 code for each value.

    The code is the index of the value's label, −1 for a null. If the column is already
    dictionary-encoded, its codes are renumbered, because the dictionary may have unused, repeated
    or null labels. The column is not decoded to plain strings, because a label of a megabyte in
    10,000 rows would take 10 GB.

    column: column of a type for which `is_label_type` is true.
    """
    if pa.types.is_dictionary(column.type):
        return _reencode_dictionary(column)
    if pa.types.is_null(column.type):
        return (), np.full(len(column), -1, dtype=np.int32)
    encoded = column.dictionary_encode()
    indices = encoded.indices
    if column.null_count:
        indices = indices.fill_null(-1)
    # Copy the codes, because compiled functions take arrays faster that can be written.
    return tuple(encoded.dictionary.to_pylist()), view_of_numbers(indices).copy()


def encode_plain_labels(labels: Any) -> tuple[tuple[Label, ...], np.ndarray] | None:
    """Return the distinct labels and one code for each row, if a dict can find them.

    The labels are in order of appearance. The result is None if the caller must use `encode_labels`
    instead: for long arrays of integers, and for labels that need the checks of `label_column`.
    These are labels of several or other types, texts of invalid Unicode and too large integers.
    """
    # Arrow (`encode_labels`) is faster than a dict for long arrays of integers.
    if isinstance(labels, np.ndarray):
        if len(labels) >= MANY_ROWS and labels.dtype.kind in "iu":
            return None
        labels = labels.tolist()
    types = set(map(type, labels))
    if types not in ({str}, {int}, {bool}):
        return None

    # A dict has the labels in order of appearance.
    code_of = {label: code for code, label in enumerate(dict.fromkeys(labels))}
    if types == {str} and not is_valid_unicode("".join(code_of)):
        return None
    if types == {int} and not INTEGERS[0] <= min(code_of) <= max(code_of) <= INTEGERS[1]:
        return None
    codes = np.fromiter(map(code_of.__getitem__, labels), dtype=np.int32, count=len(labels))
    return tuple(code_of), codes


def sort_row_codes(codes: np.ndarray, indptr: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sort the codes of each row and remove repeated codes.

    Returns the new codes int32 and the new indptr int64.

    codes: (entries,), each ≥ 0.
    indptr: (rows + 1,). Row i has the codes codes[indptr[i]:indptr[i + 1]].
    """
    # A key is row * n_codes + code, where codes are below n_codes. So sorting the keys sorts the
    # codes within each row.
    rows = len(indptr) - 1
    n_codes = int(codes.max(initial=0)) + 1
    first_keys = np.arange(rows) * n_codes
    keys = np.repeat(first_keys, np.diff(indptr)) + codes
    keys.sort()
    # Equal keys are neighbours now, and only the first of them is taken. Keys are larger than −1.
    is_new = np.diff(keys, prepend=-1) > 0

    # Split each key into the number of its row and its code.
    row, codes = np.divmod(keys[is_new], n_codes)
    indptr = np.searchsorted(row, np.arange(rows + 1))
    return codes.astype(np.int32), indptr


def renumber_codes(codes: np.ndarray, n_labels: int) -> tuple[np.ndarray, np.ndarray]:
    """Renumber codes in the order in which they first appear.

    Returns two arrays: the old codes in order of appearance, and the new code int32 of each row. A
    new code is an index into the first array. The code −1 does not change.

    codes: (rows,) old code of each row, below `n_labels`.
    n_labels: number of labels.
    """
    # `used` has the distinct codes, and `first` the first row of each, by which they are ordered.
    used, first = np.unique(codes, return_index=True)
    used = used[np.argsort(first)]
    used = used[used >= 0]

    # `number` maps old codes to new ones. Its last entry −1 is the one that the code −1 selects.
    number = np.full(n_labels + 1, -1, dtype=np.int32)
    number[used] = np.arange(len(used), dtype=np.int32)
    return used, number[codes]


def label_array(labels: Sequence[Label]) -> np.ndarray:
    """Return labels of one type as a numpy array.

    No label is changed. If no other numpy type represents all labels exactly, the array has the
    type object.
    """
    # An array of strings would lose null characters at the end of a string.
    if any(type(label) is str and label.endswith("\0") for label in labels):
        return np.array(labels, dtype=object)
    array = np.asarray(labels)
    if not labels or array.dtype.kind != "f":
        return array
    # numpy makes floats of small and large integers together if int64 does not represent them all.
    # uint64 represents them if none is negative. Otherwise they stay Python objects.
    if any(label < 0 for label in labels if type(label) is int):
        return np.array(labels, dtype=object)
    return np.array(labels, dtype=np.uint64)


def check_float_labels_exact(numbers: np.ndarray) -> None:
    """Raise InvalidTargets for floats too large to be exact labels.

    A whole float from 2^53 on (2^24 for float32) may stand for more than one integer.

    numbers: whole floats.
    """
    # `bits` is the number of binary digits of a float, one of which is not stored. Floats that are
    # longer than float64 (53 digits) count as float64.
    bits = min(np.finfo(numbers.dtype).nmant + 1, 53)
    inexact = numbers[np.abs(numbers) >= 2.0**bits]
    if len(inexact):
        kind = numbers.dtype.name.replace("float64", "double")
        raise InvalidTargets(
            f"label {float(inexact[0])!r} is read as a {kind}, and from 2**{bits} on a {kind} may be another number than "
            "was meant. Pass labels as integers from -2**63 to 2**64 - 1, or as strings."
        )


def _whole_numbers(column: pa.Array, labels: Any) -> pa.Array:
    """Return a column of labels, with whole floats as integers.

    labels: the caller's labels, from which the column was made, for the error message.
    """
    numbers = column.drop_null().to_numpy(zero_copy_only=False)
    # Arrow reads a bool after a float as a number.
    has_bools = not isinstance(labels, np.ndarray) and bool in map(type, labels)
    if has_bools or not np.all(numbers == np.floor(numbers)):
        raise _label_error(labels)
    check_float_labels_exact(numbers)
    return column.cast(pa.int64())


def _label_error(labels: Any) -> InvalidTargets:
    """Return the error for labels that cannot be stored in one Arrow column."""
    # If all labels are texts, or all are integers, the reason is one of their values (`odd`). If
    # not, the reason is their types.
    items = [item for item in map(_python_value, labels) if item is not None]
    types = set(map(type, items))
    if types == {str}:
        odd = next(label for label in items if not is_valid_unicode(label))
        return InvalidTargets(f"label {odd!r} holds half a character (a lone surrogate); pass whole text.")
    if types == {int}:
        least = min(items)
        largest = max(items)
        for odd in (least, largest):
            if not INTEGERS[0] <= odd <= INTEGERS[1]:
                return InvalidTargets(
                    f"label {odd} is outside the integers from -2**63 to 2**64 - 1; pass such labels as strings."
                )
        return InvalidTargets(
            f"the labels {least} and {largest} are in one batch, and no Arrow type holds both; pass labels as strings."
        )
    names = ", ".join(sorted(kind.__name__ for kind in types))
    return InvalidTargets(
        f"labels are of type {names}; they must be all strings, all integers or all bools. Numbers to regress on go "
        'with target="continuous", in JSON under the key "target".'
    )


def _python_value(item: Any) -> Any:
    """Return a scalar of numpy as a value of Python, and any other item unchanged."""
    if not isinstance(item, np.generic):
        return item
    value = item.item()
    # Python has no type for nanoseconds, so numpy would return such a date as an integer.
    if isinstance(value, int) and item.dtype.kind in "mM":
        return item
    return value


def _reencode_dictionary(column: pa.DictionaryArray) -> tuple[tuple[Label, ...], np.ndarray]:
    """Return a dictionary column's distinct labels with new codes.

    The new codes skip unused labels of the column's dictionary, and join repeated labels. The
    dictionary may have nulls.
    """
    # `code_of` has the code of each entry of the dictionary, one code for repeated labels.
    labels, code_of = encode_labels(column.dictionary)
    indices = column.indices
    if indices.null_count:
        # Unsigned indices cannot be −1, so convert them.
        indices = indices.cast(pa.int64()).fill_null(-1)

    # A row without a label has the index −1, which selects the last entry. So append the code −1.
    code_of = np.append(code_of, np.int32(-1))
    # `used` has the codes that occur, in order of appearance. `codes` has the new code of each row.
    used, codes = renumber_codes(code_of[view_of_numbers(indices)], len(labels))
    return tuple(labels[i] for i in used.tolist()), codes


TargetsKind = Literal["class", "multilabel", "continuous"]
"""Kind of targets: one label, a set of labels, or numbers for each row."""

KINDS: tuple[TargetsKind, ...] = ("class", "multilabel", "continuous")
"""Kinds of targets: one label, a set of labels, or numbers for each row."""


class Targets(NamedTuple):
    """Targets of the rows of one batch.

    Attributes
    ----------
    kind : "class", "multilabel" or "continuous"
        One label, a set of labels, or k numbers for each row.
    labels : tuple of str, int or bool
        Distinct labels, all of one type, in order of appearance. Empty for continuous targets.
    codes : ndarray int32
        Labels of the rows as indices into `labels`. For class, (rows,) with −1 for rows without a
        target. For multilabel, (entries,) row after row, sorted and distinct within each row. For
        continuous, empty.
    indptr : ndarray (rows + 1,) int64 or None
        For multilabel, row i has the codes codes[indptr[i]:indptr[i + 1]]. None for other kinds.
    values : ndarray (rows, k) float64 or None
        Numbers of continuous targets. Rows without a target have arbitrary values. None for other
        kinds.
    present : ndarray (rows,) bool or None
        False for rows without a target. None if every row has a target.
    """

    kind: str
    labels: tuple[Label, ...]
    codes: np.ndarray
    indptr: np.ndarray | None = None
    values: np.ndarray | None = None
    present: np.ndarray | None = None

    @property
    def rows(self) -> int:
        """Number of rows."""
        if self.values is not None:
            return len(self.values)
        if self.indptr is None:
            return len(self.codes)
        return len(self.indptr) - 1

    def take(self, row_indices: np.ndarray) -> "Targets":
        """Return the targets of some rows, with the same `labels`.

        row_indices: int64 indices of the rows.
        """
        present = None
        if self.present is not None:
            present = _none_if_all(self.present[row_indices])
        if self.values is not None:
            return self._replace(values=self.values[row_indices], present=present)
        if self.indptr is None:
            return self._replace(codes=self.codes[row_indices], present=present)

        # `places` are the positions in `codes` of the selected rows' labels.
        indptr, places = select_entries(self.indptr, row_indices)
        return self._replace(codes=self.codes[places], indptr=indptr, present=present)

    def targets_by_row(self) -> list[Any]:
        """Return the target of each row as Python values.

        A target is a label, a list of labels, or a list of numbers. It is None for a row without a
        target.
        """
        # Numbers, one label a row, or lists of labels. Row i then has the labels of the codes
        # indptr[i] : indptr[i + 1].
        rows: list[Any]
        if self.values is not None:
            rows = self.values.tolist()
        elif self.indptr is None:
            rows = [self.labels[code] if code >= 0 else None for code in self.codes.tolist()]
        else:
            flat = [self.labels[code] for code in self.codes.tolist()]
            rows = [flat[start:end] for start, end in pairwise(self.indptr.tolist())]

        # `present` is False for rows without a target, or None if all rows have one.
        if self.present is not None:
            for i in np.flatnonzero(~self.present).tolist():
                rows[i] = None
        return rows


def select_entries(indptr: np.ndarray, row_indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the indptr and the entry indices of selected rows.

    The first array is the indptr of the selected rows alone. The second array has the index of
    each entry of the selected rows in the original arrays.

    indptr: (all rows + 1,) int64. Row i has the entries indptr[i]:indptr[i + 1].
    row_indices: int64 indices of the rows.
    """
    counts = np.diff(indptr)[row_indices]
    taken = np.append(0, counts).cumsum()
    # `taken` is the new indptr. The entries of selected row i lie shifts[i] places further on in
    # the original arrays.
    shifts = indptr[row_indices] - taken[:-1]
    return taken, np.repeat(shifts, counts) + np.arange(taken[-1])


def class_targets(labels: Any) -> Targets:
    """Return targets of kind "class" from one label per row.

    labels: label of each row, None for a row without a target.
    """
    plain = encode_plain_labels(labels)
    if plain is None:
        return targets_of_labels(label_column(labels))
    return Targets("class", *plain)


def targets_of_labels(column: pa.Array) -> Targets:
    """Return targets of kind "class" from a column of labels.

    A null is a row without a target.
    """
    labels, codes = encode_labels(column)
    if not column.null_count and not pa.types.is_dictionary(column.type):
        return Targets("class", labels, codes)
    return Targets("class", labels, codes, present=_none_if_all(codes >= 0))


def targets_without_labels(n_rows: int) -> Targets:
    """Return targets of kind "class" without any label."""
    return targets_of_labels(pa.nulls(n_rows))


def multilabel_targets(label_sets: Sequence[Any]) -> Targets:
    """Return targets of kind "multilabel" from label collections.

    Raises InvalidTargets for labels of mixed types, and for None in a collection. Raises
    TargetKindMismatch for a single label instead of a collection.

    label_sets: collection of each row. None means that the row has no target, [] that it has a
        target without labels.
    """
    # Rows of other types than list and tuple are sets, arrays, None or an error. `present` (rows,)
    # is True for rows with a target. A row without a target gets no labels.
    present = None
    if not set(map(type, label_sets)) <= {list, tuple}:
        rows = [_row_labels(labels, i) for i, labels in enumerate(label_sets)]
        present = np.array([labels is not None for labels in rows], dtype=bool)
        label_sets = [() if labels is None else labels for labels in rows]
    # `flat` has the labels of all rows. Row i has those from indptr[i] up to indptr[i + 1].
    flat = list(chain.from_iterable(label_sets))
    indptr = np.cumsum([0, *map(len, label_sets)])
    plain = encode_plain_labels(flat)
    if plain is None:
        return targets_of_label_sets(label_column(flat), indptr, present)
    return _multilabel_targets(*plain, indptr, present)


def targets_of_label_sets(labels: pa.Array, indptr: np.ndarray, present: np.ndarray | None) -> Targets:
    """Return targets of kind "multilabel" from the labels of all rows.

    Raises InvalidTargets for a null among the labels.

    labels: labels of the rows, row after row.
    indptr: (rows + 1,) int64. Row i has the labels indptr[i]:indptr[i + 1].
    present: (rows,) bool, False for rows without a target, or None.
    """
    # A column of the null type takes no memory and may be very long, so encode only its first null,
    # which raises the error below.
    if pa.types.is_null(labels.type):
        labels = labels.slice(0, 1)
    table, codes = encode_labels(labels)
    if len(codes) and codes.min() < 0:
        row = row_of_entry(indptr, int(codes.argmin()))
        raise InvalidTargets(f"a label of row {row} is null; leave it out of the list.", row=row)
    return _multilabel_targets(table, codes, indptr, present)


def _multilabel_targets(
    labels: tuple[Label, ...], codes: np.ndarray, indptr: np.ndarray, present: np.ndarray | None
) -> Targets:
    codes, indptr = sort_row_codes(codes, indptr)
    return Targets("multilabel", labels, codes, indptr, present=_none_if_all(present))


def _none_if_all(present: np.ndarray | None) -> np.ndarray | None:
    """Return a mask of rows with a target, or None if every row has one."""
    if present is None or present.all():
        return None
    return present


def continuous_targets(values: ArrayLike, present: np.ndarray | None = None) -> Targets:
    """Return targets of kind "continuous" from finite numbers.

    Raises InvalidTargets.

    values: (rows,) or (rows, k).
    present: (rows,) bool, False for rows without a target, whose numbers are ignored. None if every
        row has a target.
    """
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as e:
        raise InvalidTargets(f"continuous targets are not numbers ({e}).") from e
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2:
        raise InvalidTargets(f"continuous targets have {array.ndim} dimensions; pass (rows,) or (rows, k).")
    if present is not None:
        array[~present] = 0.0
        present = _none_if_all(present)
    # `valid` (rows, k) is False for NaN, because its comparisons are False.
    valid = np.abs(array) <= LARGEST
    if not valid.all():
        row = int(np.argmin(valid.all(axis=1)))
        raise InvalidTargets(
            f"Input y contains NaN or infinity: the target of row {row} is NaN, null or larger than {LARGEST:g}; "
            "targets must be finite.",
            row=row,
        )
    return Targets("continuous", (), np.empty(0, dtype=np.int32), values=array, present=present)


def indicator_targets(indicator: Any, labels: tuple[Label, ...]) -> Targets:
    """Return Targets of kind "multilabel" from an indicator matrix.

    indicator: array or CSR matrix with sorted indices (rows, labels), nonzero where a row has the
        label.
    labels: name of the label of each column.
    """
    rows, codes = indicator.nonzero()
    indptr = np.searchsorted(rows, np.arange(indicator.shape[0] + 1))
    return Targets("multilabel", labels, codes.astype(np.int32), indptr)


def raise_unsupported_target_kind(kind: str, allowed_kinds: Sequence[str]) -> NoReturn:
    """Raise TargetKindMismatch for targets that an estimator cannot learn.

    kind: kind of the targets ("class", "multilabel" or "continuous").
    allowed_kinds: kinds that the estimator can learn from.
    """
    if kind == "multilabel":
        raise TargetKindMismatch(
            "several labels a row were given; this estimator takes one label a row. "
            "Use OPLS, CCA or HSL for several labels a row."
        )
    raise TargetKindMismatch(
        f"{kind} targets were given; this estimator learns from {' or '.join(allowed_kinds)} targets. "
        'Pass such targets (target="class" reads whole numbers as classes), or use OPLS, CCA or PLSDA for continuous ones.'
    )


def drop_rows_without_target(block: Block) -> tuple[Block, int]:
    """Return a block without the rows that have no target.

    Returns two values:

    - The rows that have a target.
    - Number of rows that have no target.

    If all rows have a target, the block itself is returned.
    """
    # Without targets, no row remains.
    if block.y is None:
        return block.take(np.arange(0)), block.rows
    present = block.y.present
    if present is None or present.all():
        return block, 0
    keep = np.flatnonzero(present)
    return block.take(keep), block.rows - len(keep)


def _row_labels(labels: Any, row_number: int) -> Any:
    """Return the labels of one row as a collection.

    The result is None for a row without a target. Raises TargetKindMismatch for a single label.
    """
    if labels is None or isinstance(labels, list | tuple | set | frozenset):
        return labels
    if isinstance(labels, np.ndarray):
        return labels.tolist()
    raise TargetKindMismatch(
        f"row {row_number} has the single label {labels!r} where a list of labels is needed (multilabel targets).",
        row=row_number,
    )


def no_row_has_target(targets: Targets) -> bool:
    """Return True if no row has a target.

    If the result is True, the kind of the targets has no meaning.
    """
    return targets.present is not None and not targets.present.any()


def check_label_type(known_labels: Sequence[Label], new_labels: Sequence[Label]) -> None:
    """Check that new labels have the type of known labels.

    Raises InvalidTargets if the types differ.

    known_labels: labels of earlier batches, all of one type.
    new_labels: labels of a batch, all of one type.
    """
    if known_labels and new_labels and type(known_labels[0]) is not type(new_labels[0]):
        raise InvalidTargets(
            f"labels are {type(new_labels[0]).__name__} ({new_labels[0]!r}); rows so far had "
            f"{type(known_labels[0]).__name__} labels ({known_labels[0]!r}). Pass those, or start anew."
        )


def check_labels_allowed(allowed_labels: Sequence[Label], new_labels: Sequence[Label]) -> None:
    """Raise InvalidTargets for a new label that is not allowed.

    The message names the allowed label that is most similar.

    allowed_labels: the allowed labels. If empty, every label is allowed.
    new_labels: labels of a batch.
    """
    known = set(allowed_labels)
    others = [label for label in new_labels if label not in known]
    if known and others:
        named = ", ".join(map(repr, allowed_labels[:5]))
        if len(allowed_labels) > 5:
            named += " …"
        raise InvalidTargets(
            f"the batch has the label {others[0]!r}{did_you_mean(others[0], allowed_labels)}; this stream's labels are "
            f"{named} (allowed_labels). Correct it, or allow it as well.",
            labels=others[:5],
        )
