"""target_parsing: what a caller passes as y, as Targets.

The form decides the kind once, unless `target` or an earlier batch has: 1-D str, int or bool is class; 1-D float class where
the method takes one label a row and every value is whole, else continuous; 2-D of only 0 and 1 multilabel, any other
numeric 2-D continuous; a list of lists label sets. None, pandas' NA, and NaN in a column of one target a row, is a row
without a target.

Why this way: all that depends on how y happens to be written stands here; `targets` knows values only.
"""

import numbers
import warnings
from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np
from sklearn.exceptions import DataConversionWarning

from stream_dr.errors import InvalidTargets, TargetKindMismatch
from stream_dr.rows.block import LARGEST
from stream_dr.targets.label_codes import check_exact
from stream_dr.targets.targets import KINDS, Targets, class_targets, continuous_targets, multilabel_targets, refuse_kind


def parse_targets(y: Any, rows: int, kinds: Sequence[str], target: str = "auto", known: str | None = None) -> Targets:
    """Targets from what a caller passes as y.

    y: (rows,) labels or numbers, (rows, k) indicator or numbers, a list of label collections, or a Targets.
    kinds: the kinds the estimator can learn from. target: "auto" or one of KINDS. known: the kind decided by an earlier
    batch, or None. Raises InvalidTargets (unreadable, wrong length) or TargetKindMismatch (another kind).
    """
    if target != "auto" and known in KINDS and known != target:
        raise TargetKindMismatch(
            f"target={target!r} was given; rows so far had {known} targets. Pass those with target={known!r}, or start anew."
        )
    wanted = known or (target if target != "auto" else None)
    if isinstance(y, Targets):
        parsed = y
    else:
        sized = any(hasattr(y, name) for name in ("__len__", "shape", "__array__", "to_numpy"))
        if not sized or isinstance(y, str | bytes | Mapping | Set):
            raise InvalidTargets(f"y is of type {type(y).__name__}; pass a list or an array of one target a row.")
        parsed = _parse(y, kinds, wanted)
    if parsed.rows != rows:
        raise InvalidTargets(
            f"Found input variables with inconsistent numbers of samples: {rows} rows but {parsed.rows} targets; "
            "pass one target a row."
        )
    if parsed.kind == "multilabel" and parsed.kind not in kinds:
        refuse_kind(parsed.kind, kinds)  # before the other kind's error, which would not say what can learn from these
    if wanted is not None and parsed.kind != wanted:
        raise TargetKindMismatch(
            f"targets are of kind {parsed.kind}; this model was started with {wanted}. "
            f"Pass {wanted} targets or start a new model; target= says how numbers are read."
        )
    if parsed.kind not in kinds:
        refuse_kind(parsed.kind, kinds)
    return parsed


def one_label_a_row(y: Any, stacklevel: int) -> Any:
    """y as it is; a single column (rows, 1) as (rows,), with scikit-learn's warning that it was read so."""
    if getattr(y, "ndim", 1) != 2 or y.shape[1] != 1:
        return y
    warnings.warn(
        "A column-vector y was passed when a 1d array was expected; it is read as one label a row.",
        DataConversionWarning,
        stacklevel=stacklevel + 1,
    )
    return y[:, 0] if isinstance(y, np.ndarray) else y


def refuse_ambiguous(y: Any, targets: Targets) -> None:
    """Raise InvalidTargets where y, read as `targets` by its form alone, may have been meant as one label a row.

    Whole numbers written as floats, and a single column of whole numbers, are classes to an estimator that takes one label
    a row, and measurements or an indicator to one that takes several.
    """
    if isinstance(y, Targets) or not targets.rows:
        return
    if targets.values is None:
        doubtful = targets.kind == "multilabel" and getattr(y, "ndim", 1) == 2 and y.shape[1] == 1
    else:
        doubtful = targets.values.shape[1] == 1 and bool(np.all(targets.values == np.floor(targets.values)))
    if doubtful:
        raise InvalidTargets(
            "y is whole numbers that can be classes or measurements, and no targets so far say which; what the first ones "
            'are holds for good. Give target="class" or target="continuous".'
        )


def _parse(y: Any, kinds: Sequence[str], kind: str | None) -> Targets:
    """Targets of the given kind, or of the kind y's form says."""
    if type(y) is list and kind in (None, "class") and "class" in kinds and set(map(type, y)) in _PLAIN:
        return class_targets(y)  # the commonest form, without a Python loop
    if np.ma.isMaskedArray(y):
        y = y.tolist()
    if _has_own_gaps(y):
        y = y.astype(object)  # they would come as floats with NaN
    if hasattr(y, "to_pylist"):
        y = y.to_pylist()
    elif hasattr(y, "to_numpy"):
        y = y.to_numpy()
    if hasattr(y, "toarray"):
        y = y.toarray()
    elif hasattr(y, "__array__") and not hasattr(y, "__iter__"):
        y = np.asarray(y)
    if not isinstance(y, np.ndarray) and _holds_collections(y):
        if kind != "continuous" and not _is_numeric_table(y):
            return multilabel_targets([None if _is_missing(v) else v for v in y])
        y = _table(y)
    if not isinstance(y, np.ndarray):
        y = _column(y)
    if y.ndim == 2 and y.shape[1] == 1 and (kinds == ("class",) or kind == "class" or _is_text(y)):
        y = y[:, 0]
    if y.ndim == 2:
        return _parse_table(y, kind)
    if y.ndim != 1:
        raise InvalidTargets(f"y has {y.ndim} dimensions; pass (rows,) or (rows, k).")
    if y.dtype == object:
        y = _with_gaps(y)
        if _holds_collections(y):
            return multilabel_targets(list(y))
        present = np.array([v is not None for v in y], dtype=bool)
        if present.any() and all(isinstance(v, float | np.floating) for v in y[present]):
            return _spread(_parse_column(y[present].astype(np.float64), kinds, kind), present)
    return _parse_column(y, kinds, kind)


def _spread(targets: Targets, present: np.ndarray) -> Targets:
    """Targets of the present rows (rows,) bool, as those of all rows."""
    if present.all():
        return targets
    if targets.values is not None:
        values = np.zeros((len(present), targets.values.shape[1]))
        values[present] = targets.values
        return targets._replace(values=values, present=present)
    codes = np.full(len(present), -1, dtype=np.int32)
    codes[present] = targets.codes
    return targets._replace(codes=codes, present=present)


_PLAIN = ({str}, {int}, {bool})
"""Types of a list of labels, one a row, that needs no closer look."""


def _table(y: Any) -> np.ndarray:
    """A list of rows as an array; lists of different length are label sets where numbers are needed."""
    try:
        return np.asarray(y)
    except ValueError as e:
        raise TargetKindMismatch(
            "lists of several lengths were given; this model was started with numbers. Pass a row of numbers a row."
        ) from e


def _is_text(y: np.ndarray) -> bool:
    return y.dtype.kind in "SU" or _first_text(y) is not None


def _first_text(y: np.ndarray) -> Any:
    """The first string of an array of strings or objects, or None."""
    return next((v for v in y.ravel() if isinstance(v, str | bytes)), None) if y.dtype.kind in "OSU" else None


def _is_missing(value: Any) -> bool:
    """Whether an entry says that there is none: None, NaN among objects, pandas' NA or NaT (by name: pandas is optional)."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def _has_own_gaps(y: Any) -> bool:
    """Whether y is of pandas, with gaps in one of its own types (by its methods: pandas is optional)."""
    types = [y.dtype] if hasattr(y, "dtype") else list(getattr(y, "dtypes", ()))
    own = hasattr(y, "isna") and any(not isinstance(kind, np.dtype) for kind in types)
    return own and bool(np.asarray(y.isna()).any())


def _with_gaps(y: np.ndarray) -> np.ndarray:
    """A column of objects with None where an entry is missing."""
    items = y.tolist()
    if set(map(type, items)) <= {str, int, bool, type(None)}:
        return y
    column = np.empty(len(items), dtype=object)
    column[:] = [None if _is_missing(v) else v for v in items]
    return column


def _refuse_text(y: np.ndarray) -> None:
    """Raise TargetKindMismatch when labels are given where numbers are needed."""
    if _is_text(y):
        raise TargetKindMismatch(
            f"labels were given ({_first_text(y)!r}); this model was started with numbers. "
            "Pass numbers, or start a new model."
        )


def _parse_table(y: np.ndarray, kind: str | None) -> Targets:
    if kind == "continuous":
        _refuse_text(y)
    if y.dtype.kind not in "biuf":
        raise InvalidTargets(f"a 2-D y must be numbers, not {y.dtype}; pass lists of labels for several labels a row.")
    if kind == "continuous":
        return continuous_targets(y)
    if kind == "class":
        raise TargetKindMismatch("several labels a row were given where one is needed. Use OPLS, CCA or HSL.")
    if np.all((y == 0) | (y == 1)) and (kind == "multilabel" or y.size):
        codes = np.nonzero(y)[1].astype(np.int32)
        indptr = np.concatenate(([0], np.cumsum(np.count_nonzero(y, axis=1)))).astype(np.int64)
        return Targets("multilabel", tuple(range(y.shape[1])), codes, indptr)
    if kind == "multilabel":
        raise TargetKindMismatch(
            "a 2-D y with values other than 0 and 1; this model was started with multilabel targets."
        )
    return continuous_targets(y)


def _parse_column(y: np.ndarray, kinds: Sequence[str], kind: str | None) -> Targets:
    if np.iscomplexobj(y):
        raise InvalidTargets("Complex data not supported: targets are complex numbers.")
    if y.dtype.kind == "f":
        present = ~np.isnan(y)
        if not present.all():
            return _spread(_parse_column(y[present], kinds, kind), present)
        given, y = y, y.astype(np.float64, copy=False)
        if not np.all(np.abs(y) <= LARGEST):
            raise InvalidTargets("Input y contains NaN or infinity; targets must be finite.")
        whole = bool(np.all(y == np.floor(y)))
        single = "class" in kinds and not {"multilabel", "continuous"} <= set(kinds)
        if kind == "continuous" or (kind is None and not (single and whole)):
            if kind is None and "continuous" not in kinds:
                raise InvalidTargets(
                    "Unknown label type: continuous. Targets are numbers that are not whole; this estimator needs "
                    "labels: pass str, int or bool."
                )
            return continuous_targets(y)
        if not whole:
            raise TargetKindMismatch(
                "Unknown label type: continuous. Targets are numbers that are not whole; this model takes labels: "
                "pass str, int, bool or whole numbers, or start a new model."
            )
        check_exact(given)
        y = y.astype(np.int64)
    if kind == "continuous":
        _refuse_text(y)
        present = np.array([v is not None for v in y], dtype=bool)
        return _spread(continuous_targets(y[present]), present)
    if kind == "multilabel":
        raise TargetKindMismatch(
            "one label a row was given; this model was started with multilabel targets. Pass a list of labels a row."
        )
    return class_targets(y)


def _holds_collections(y: Any) -> bool:
    kinds = (list, tuple, set, frozenset, np.ndarray)
    try:
        return any(isinstance(item, kinds) for item in y)
    except TypeError as e:
        raise InvalidTargets(f"y is {type(y).__name__}; pass one target a row.") from e


def _is_numeric_table(y: Any) -> bool:
    """Whether a list of lists is a rectangular table of floats, or of only 0 and 1 with more than one column."""
    lengths = {len(item) if hasattr(item, "__len__") else -1 for item in y}
    if len(lengths) != 1 or lengths <= {0, -1}:
        return False
    flat = [v for item in y for v in item]
    return all(isinstance(v, float | np.floating) for v in flat)


def _column(y: Any) -> np.ndarray:
    """A list of scalars as a 1-D array that keeps each label's type."""
    items = list(y)
    if items and all(isinstance(v, numbers.Real) and not isinstance(v, bool | np.bool_) for v in items):
        array = np.asarray(items)
        if array.dtype.kind != "f" or not all(isinstance(v, numbers.Integral) for v in items):
            return array
    if items and all(isinstance(v, bool | np.bool_) for v in items):
        return np.asarray(items, dtype=bool)
    column = np.empty(len(items), dtype=object)
    column[:] = items
    return column
