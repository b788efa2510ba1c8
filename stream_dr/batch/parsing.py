"""Conversion of a caller's targets y to Targets.

Containers of any library become an array or a list first. None, NaN, and pandas' NA and NaT are
rows without a target.

The kind of the targets is the kind of earlier batches, or else the parameter `target`. If there
are no earlier batches and `target` is "auto", the form of y decides:

- A list of label collections is multilabel.
- An array (rows, k) of only 0 and 1 is multilabel. Any other array (rows, k) is continuous. An
  array (rows, 1) is read like (rows,), unless the kind is known to be multilabel.
- Labels (rows,) of str, int or bool are class.
- An array (rows,) of floats is class if every value is whole and the estimator learns from one
  label per row. Other arrays (rows,) of floats are continuous.
"""

import numbers
import sys
from collections.abc import Mapping, Sequence, Set, Sized
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from stream_dr.batch.rows import NumpyArrayLike, NumpyConvertible
from stream_dr.batch.sparse import is_sparse
from stream_dr.batch.table import LARGEST
from stream_dr.batch.targets import (
    KINDS,
    Targets,
    check_float_labels_exact,
    class_targets,
    continuous_targets,
    indicator_targets,
    multilabel_targets,
    raise_unsupported_target_kind,
)
from stream_dr.errors import InvalidTargets, TargetKindMismatch


def parse_targets(
    y: Any, n_rows: int, allowed_kinds: Sequence[str], requested_kind: str = "auto", earlier_kind: str | None = None
) -> Targets:
    """Convert the caller's targets y to a Targets object.

    Raises InvalidTargets if y cannot be read, or does not have one target per row. Raises
    TargetKindMismatch if y is of a kind that the estimator or earlier batches exclude.

    Parameters
    ----------
    y : array-like or Targets
        Labels or numbers (rows,), indicators or numbers (rows, k), or a list of label collections.
        An array (rows, 1) is read like (rows,), unless the kind is "multilabel".
    n_rows : int
        Number of rows.
    allowed_kinds : sequence of str
        Kinds that the estimator can learn from.
    requested_kind : str
        Kind that the caller passed, one of KINDS, or "auto" to infer the kind.
    earlier_kind : str or None
        Kind of the targets of earlier batches.
    """
    if requested_kind != "auto" and earlier_kind in KINDS and earlier_kind != requested_kind:
        raise TargetKindMismatch(
            f"target={requested_kind!r} was given; rows so far had {earlier_kind} targets. Pass those with "
            f"target={earlier_kind!r}, or start anew."
        )
    # `settled` is the kind that earlier batches or the caller have decided. None: y decides it.
    settled = earlier_kind
    if not settled and requested_kind != "auto":
        settled = requested_kind
    if isinstance(y, Targets):
        targets = y
    else:
        targets = _read_targets(y, allowed_kinds, settled)

    if targets.rows != n_rows:
        raise InvalidTargets(
            f"Found input variables with inconsistent numbers of samples: {n_rows} rows but {targets.rows} targets; "
            "pass one target a row."
        )
    fits_settled = settled in (None, targets.kind)
    # Prefer the error that names estimators for these targets, unless another kind is settled.
    if targets.kind not in allowed_kinds and (fits_settled or targets.kind == "multilabel"):
        raise_unsupported_target_kind(targets.kind, allowed_kinds)
    if not fits_settled:
        raise TargetKindMismatch(
            f"targets are of kind {targets.kind}; this model was started with {settled}. "
            f"Pass {settled} targets or start a new model; target= says how numbers are read."
        )
    return targets


def parse_target_array(y: np.ndarray, target_kind: str = "auto") -> Targets:
    """Convert targets of an array in a file to Targets.

    target_kind: kind of the targets. "auto" means that the type and the values decide the kind.
        With "auto", a vector of floats is read as labels if all floats are whole numbers or NaN.
    """
    # An estimator that takes only "class" or "continuous" reads whole floats as labels.
    is_float_vector = y.size == len(y) and y.dtype.kind == "f"
    kinds = KINDS
    if is_float_vector and target_kind == "auto":
        kinds = ("class", "continuous")
    return parse_targets(y, len(y), kinds, target_kind)


def are_probably_measurements(kind: str | None, n_labels: int, n_rows: int) -> bool:
    """Return True if labels are probably measurements or ids.

    The result is True if there is one label a row, if there are more than 100 distinct labels, and
    if the number of distinct labels is more than a tenth of the number of rows. Classes usually
    have fewer labels.

    kind: kind of the targets, or None if there are none.
    n_labels: number of distinct labels.
    n_rows: number of rows.
    """
    return kind == "class" and n_labels > max(100, n_rows / 10)


def check_targets_unambiguous(passed_targets: object, parsed_targets: Targets) -> None:
    """Raise InvalidTargets if nothing tells whether targets are labels or measurements.

    Whole numbers written as floats can be both. An estimator that takes one label per row reads
    them as labels. Other estimators read them as measurements. Here no estimator is known.

    passed_targets: targets as the caller passed them, before they were parsed.
    parsed_targets: the targets, parsed without an estimator.
    """
    # The caller has already decided the kind of a Targets object. Without rows, nothing is decided.
    if isinstance(passed_targets, Targets) or not parsed_targets.rows:
        return
    # Without an estimator, `parse_targets` reads such numbers as measurements.
    values = parsed_targets.values
    if values is not None and values.shape[1] == 1 and np.all(values == np.floor(values)):
        raise InvalidTargets(
            "y is whole numbers that can be classes or measurements, and no targets so far say which; what the first ones "
            'are holds for good. Give target="class" or target="continuous".'
        )


def _read_targets(y: Any, allowed_kinds: Sequence[str], settled_kind: str | None) -> Targets:
    """Return the Targets of y.

    allowed_kinds: kinds that the estimator can learn. They decide how whole floats are read.
    settled_kind: kind that the caller or an earlier batch has decided, or None.
    """
    if type(y) not in (np.ndarray, list):
        y = _unwrap_container(y)
    if not isinstance(y, np.ndarray):
        return _targets_of_items(y, allowed_kinds, settled_kind)

    # A matrix with a single column has one target for each row. But if rows have several labels
    # ("multilabel"), numbers 0 and 1 in it tell which rows have the only label.
    is_column = y.ndim == 2 and y.shape[1] == 1
    is_indicator = settled_kind == "multilabel" and y.dtype.kind not in "SUO"
    if is_column and not is_indicator:
        y = y[:, 0]
    if y.ndim == 2:
        return _targets_of_matrix(y, settled_kind)
    if y.ndim != 1:
        raise InvalidTargets(f"y has {y.ndim} dimensions; pass (rows,) or (rows, k).")
    # numpy's kinds c and f are complex numbers and floats. Other types are read as labels.
    if y.dtype == object:
        return _targets_of_objects(y.tolist(), allowed_kinds, settled_kind)
    if y.dtype.kind == "c":
        raise InvalidTargets("Complex data not supported: targets are complex numbers.")
    if y.dtype.kind == "f":
        return _targets_of_floats(y, allowed_kinds, settled_kind)
    return _targets_of_labels(y, settled_kind)


def _unwrap_container(y: Any) -> np.ndarray | list[Any]:
    """Return a container's values as an array or a list.

    Containers are masked arrays, sparse matrices, and columns and tables of pandas, polars or
    Arrow.
    """
    # Masked targets become None, which is a row without a target.
    if np.ma.isMaskedArray(y):
        if not y.mask.any():
            return y.data  # type: ignore[no-any-return]
        return np.where(y.mask, np.array(None), y.data)
    if is_sparse(y):
        return y.toarray()  # type: ignore[no-any-return]
    # Convert missing values of pandas to objects first.
    # In an array of floats with NaN, large integers would lose digits.
    if _has_missing_of_pandas(y):
        y = y.astype(object)

    # An Arrow column becomes a list, because an array would make floats of integers with nulls.
    if isinstance(y, pa.Array | pa.ChunkedArray):
        return y.to_pylist()  # type: ignore[no-any-return]
    # Columns and tables of pandas and polars have the method `to_numpy`, and others `__array__`.
    if isinstance(y, NumpyConvertible):
        y = y.to_numpy()
    if isinstance(y, NumpyArrayLike):
        return np.asarray(y)
    # A text, a mapping or a set has a length, but no target for each row.
    if not isinstance(y, Sized) or isinstance(y, str | bytes | Mapping | Set):
        raise InvalidTargets(f"y is of type {type(y).__name__}; pass a list or an array of one target a row.")
    try:
        return list(y)  # type: ignore[call-overload,no-any-return]
    except TypeError as e:
        raise InvalidTargets(f"y is {type(y).__name__}; pass one target a row.") from e


def _has_missing_of_pandas(y: Any) -> bool:
    """True if y has a pandas extension type and has missing values."""
    # If pandas is not loaded, y cannot be of it. Loading it here would take time.
    pandas: Any = sys.modules.get("pandas")
    if pandas is None:
        return False
    if isinstance(y, pandas.DataFrame):
        types = list(y.dtypes)
    elif isinstance(y, pandas.Series | pandas.Index | pandas.api.extensions.ExtensionArray):
        types = [y.dtype]
    else:
        return False
    # A column of a numpy type has no missing values of a pandas type.
    if all(isinstance(kind, np.dtype) for kind in types):
        return False
    return bool(np.asarray(y.isna()).any())


def _targets_of_items(items: list[Any], allowed_kinds: Sequence[str], settled_kind: str | None) -> Targets:
    """Return the Targets of a list with one item for each row.

    allowed_kinds: kinds that the estimator can learn.
    settled_kind: kind that the caller or an earlier batch has decided, or None.
    """
    # Integers of Python stay as they are, because numpy would make floats of large ones.
    types = set(map(type, items))
    if types <= {int}:
        return _targets_of_labels(items, settled_kind)
    if not _are_numbers(types):
        return _targets_of_objects(items, allowed_kinds, settled_kind)

    # Other integers, such as those of numpy, are labels too.
    if all(issubclass(kind, numbers.Integral) for kind in types):
        return _targets_of_labels([int(v) for v in items], settled_kind)
    # numpy makes objects, and no floats, of some numbers, such as fractions.
    array = np.asarray(items)
    if array.dtype.kind == "f":
        return _targets_of_floats(array, allowed_kinds, settled_kind)
    return _targets_of_objects(items, allowed_kinds, settled_kind)


def _are_numbers(types: set[type]) -> bool:
    """True if all types are numbers, which bools and differences of times are not here."""
    return types.isdisjoint({bool, np.timedelta64}) and all(issubclass(kind, numbers.Real) for kind in types)


def _targets_of_objects(items: list[Any], allowed_kinds: Sequence[str], settled_kind: str | None) -> Targets:
    """Return the Targets of a list with any Python object for each row.

    allowed_kinds: kinds that the estimator can learn.
    settled_kind: kind that the caller or an earlier batch has decided, or None.
    """
    # For plain labels, no item needs a closer look.
    types = set(map(type, items))
    if types <= {str, int, bool, type(None)}:
        return _targets_of_labels(items, settled_kind)

    # Decide by the types of the items that are not missing. `_plain_item` returns None for missing
    # items of any type.
    items = [_plain_item(item) for item in items]
    types = set(map(type, items)) - {type(None)}
    if any(issubclass(kind, list | tuple | set | frozenset | np.ndarray) for kind in types):
        return _targets_of_collections(items, allowed_kinds, settled_kind)
    if types and all(issubclass(kind, float | np.floating | Decimal) for kind in types):
        floats = np.array(items, dtype=np.float64)
        return _targets_of_floats(floats, allowed_kinds, settled_kind)
    # What is left are labels, some of them missing, or objects that are refused as labels.
    return _targets_of_labels(items, settled_kind)


def _targets_of_collections(rows: list[Any], allowed_kinds: Sequence[str], settled_kind: str | None) -> Targets:
    """Return the Targets of rows with a list of labels or numbers each.

    allowed_kinds: kinds that the estimator can learn.
    settled_kind: kind that the caller or an earlier batch has decided, or None.
    """
    # Vectors of floats are numbers to predict. Other rows are lists of labels, unless the settled
    # kind says that they are numbers, too.
    if settled_kind != "continuous" and not _is_float_table(rows):
        return multilabel_targets(rows)
    try:
        table = np.asarray(rows)
    except ValueError as e:
        raise TargetKindMismatch(
            "lists of several lengths were given; this model was started with numbers. Pass a row of numbers a row."
        ) from e
    # Sets, or rows without a target among the lists, become an array of objects with one dimension.
    # `multilabel_targets` reads or refuses them.
    if table.ndim == 1:
        return multilabel_targets(rows)
    return _read_targets(table, allowed_kinds, settled_kind)


def _plain_item(item: Any) -> Any:
    """Return a target in the form that the parser reads.

    A missing item becomes None, and an array without dimensions becomes its value. Any other item
    is returned unchanged.
    """
    if isinstance(item, np.ndarray) and item.ndim == 0:
        item = item.item()
    # NA and NaT are recognised by their class names, since pandas is optional.
    if type(item).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(item, float | np.floating) and np.isnan(item):
        return None
    return item


def _is_float_table(rows: list[Any]) -> bool:
    """True if all rows have vectors of floats or Decimals of one length.

    The length must not be 0.
    """
    if not all(isinstance(row, Sized) for row in rows):
        return False
    lengths = set(map(len, rows))
    if len(lengths) != 1 or 0 in lengths:
        return False
    return all(isinstance(v, float | np.floating | Decimal) for row in rows for v in row)


def _targets_of_matrix(y: np.ndarray, settled_kind: str | None) -> Targets:
    """Return the Targets of a matrix (rows, k).

    Column j has the numbers to predict, or is 1 for rows with the label j and 0 for others.

    settled_kind: kind of targets that the caller or an earlier batch has decided, or None.
    """
    # numpy stores Decimals as objects (kind O). The comparison with 0 and 1 below needs numbers.
    # The kinds S and U are texts, and b, i, u and f are bools and numbers.
    if y.dtype == object and any(isinstance(v, Decimal) for v in y.flat):
        y = y.astype(np.float64)
    # Texts have an error of their own if the kind is settled as "continuous".
    if y.dtype.kind in "SUO":
        _refuse_text_for_numbers(y.ravel().tolist(), settled_kind)
    if y.dtype.kind not in "biuf":
        raise InvalidTargets(f"a 2-D y must be numbers, not {y.dtype}; pass lists of labels for several labels a row.")
    if settled_kind == "class":
        raise TargetKindMismatch("several labels a row were given where one is needed. Use OPLS, CCA or HSL.")

    # An array without entries is an indicator matrix only if the kind is known.
    may_be_indicator = settled_kind == "multilabel" or (settled_kind != "continuous" and y.size)
    if may_be_indicator and np.all((y == 0) | (y == 1)):
        labels = tuple(range(y.shape[1]))
        return indicator_targets(y, labels)
    if settled_kind == "multilabel":
        raise TargetKindMismatch(
            "a 2-D y with values other than 0 and 1; this model was started with multilabel targets."
        )
    return continuous_targets(y)


def _targets_of_floats(y: np.ndarray, allowed_kinds: Sequence[str], settled_kind: str | None) -> Targets:
    """Return the Targets of floats (rows,).

    Whole floats are labels if the estimator learns labels, and measurements otherwise. NaN is a row
    without a target.

    allowed_kinds: kinds of targets that the estimator can learn.
    settled_kind: kind that the caller or an earlier batch has decided, or None.
    """
    present = ~np.isnan(y)
    values = y[present].astype(np.float64, copy=False)
    if not np.all(np.abs(values) <= LARGEST):
        raise InvalidTargets("Input y contains NaN or infinity; targets must be finite.")
    whole = bool(np.all(values == np.floor(values)))
    if settled_kind is None:
        settled_kind = _choose_kind_of_floats(whole, allowed_kinds)
    if settled_kind == "continuous":
        return continuous_targets(y, present)

    # The floats are labels. Labels must be whole numbers that a float represents exactly.
    if not whole:
        raise TargetKindMismatch(
            "Unknown label type: continuous. Targets are numbers that are not whole; this model takes labels: "
            "pass str, int, bool or whole numbers, or start a new model."
        )
    # NaN (no target) cannot be an integer, so floats with NaN stay floats. `class_targets` reads
    # NaN as a row without a target, and makes integers of the other floats.
    check_float_labels_exact(y[present])
    dtype = np.int64 if present.all() else np.float64
    return _targets_of_labels(y.astype(dtype, copy=False), settled_kind)


def _choose_kind_of_floats(whole: bool, allowed_kinds: Sequence[str]) -> str:
    """Return the kind of floats as targets, "class" or "continuous".

    Estimators that learn from all kinds read floats as measurements, even whole ones.

    whole: True if all floats are whole numbers.
    """
    learns_all = {"class", "multilabel", "continuous"} <= set(allowed_kinds)
    if whole and "class" in allowed_kinds and not learns_all:
        return "class"
    if "continuous" in allowed_kinds:
        return "continuous"
    raise InvalidTargets(
        "Unknown label type: continuous. Targets are numbers that are not whole; this estimator needs "
        "labels: pass str, int or bool."
    )


def _targets_of_labels(labels: np.ndarray | list[Any], settled_kind: str | None) -> Targets:
    """Return the Targets of values that look like one label for each row.

    settled_kind: kind that the caller or an earlier batch has decided, or None. If it is
        "continuous", the values are numbers to predict. If it is "multilabel", an error is raised.
    """
    if settled_kind == "continuous":
        return _numbers_to_predict(labels)
    if settled_kind == "multilabel":
        raise TargetKindMismatch(
            "one label a row was given; this model was started with multilabel targets. Pass a list of labels a row."
        )
    return class_targets(labels)


def _numbers_to_predict(numbers_or_none: np.ndarray | list[Any]) -> Targets:
    """Return continuous Targets of whole numbers or objects. None is a row without a target."""
    if isinstance(numbers_or_none, np.ndarray) and numbers_or_none.dtype.kind in "biu":
        return continuous_targets(numbers_or_none)
    items = list(numbers_or_none)
    _refuse_text_for_numbers(items, "continuous")
    present = np.array([item is not None for item in items], dtype=bool)
    # `continuous_targets` converts the objects to floats. None becomes NaN.
    values = np.fromiter(items, dtype=object, count=len(items))
    return continuous_targets(values, present)


def _refuse_text_for_numbers(items: list[Any], settled_kind: str | None) -> None:
    """Raise TargetKindMismatch for a text, if the stream's targets are numbers."""
    # items: target of each row.
    # settled_kind: kind that the caller or an earlier batch has decided, or None. "continuous" are
    # numbers.
    first = next((v for v in items if isinstance(v, str | bytes)), None)
    if settled_kind == "continuous" and first is not None:
        raise TargetKindMismatch(
            f"labels were given ({first!r}); this model was started with numbers. Pass numbers, or start a new model."
        )
