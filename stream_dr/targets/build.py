"""Construction of Targets from a list or an array."""

import numpy as np

from stream_dr.targets.normalise import CollectionsOrArray
from stream_dr.targets.targets import Targets, TargetsKind, class_targets, continuous_targets, multilabel_targets


def build_targets(y: CollectionsOrArray, kind: TargetsKind) -> Targets:
    """Convert y to a Targets object.

    Raises InvalidTargets for an invalid label or number.

    y: a list of label collections, or an array (rows, k) or (rows,), as `normalise_targets`
        returns it.
    kind: kind of y ("class", "multilabel" or "continuous"), as `infer_targets_kind` returns it.
    """
    # In these forms every row has a target. A list of label lists has [] or None for a row without.
    if isinstance(y, list):
        return multilabel_targets(y)
    if y.ndim == 2:
        return continuous_targets(y) if kind == "continuous" else _targets_from_indicator(y)
    if y.dtype.kind != "f" and kind == "class":
        return class_targets(y)

    # Arrays in which NaN or None stands for a row without a target.
    present = ~np.isnan(y) if y.dtype.kind == "f" else np.array([v is not None for v in y], dtype=bool)
    if kind == "continuous":
        targets = continuous_targets(y if present.all() else np.where(present, y, 0))
    else:
        targets = class_targets(y[present].astype(np.int64))
        codes = np.full(len(y), -1, dtype=np.int32)
        codes[present] = targets.codes
        targets = targets._replace(codes=codes)
    return targets if present.all() else targets._replace(present=present)


def _targets_from_indicator(y: np.ndarray) -> Targets:
    """Convert an indicator array to Targets of kind "multilabel".

    The labels are the numbers of the columns.

    y: (rows, labels), 1 where a row has the label and 0 elsewhere.
    """
    codes = np.nonzero(y)[1].astype(np.int32)
    indptr = np.concatenate(([0], np.cumsum(np.count_nonzero(y, axis=1)))).astype(np.int64)
    return Targets("multilabel", tuple(range(y.shape[1])), codes, indptr)
