"""Construction of Targets from a list or an array."""

import numpy as np

from stream_dr.targets.normalise import CollectionsOrArray
from stream_dr.targets.targets import (
    Targets,
    TargetsKind,
    class_targets,
    continuous_targets,
    indicator_targets,
    multilabel_targets,
)


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
        return continuous_targets(y) if kind == "continuous" else indicator_targets(y, tuple(range(y.shape[1])))
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
    if present.all():
        return targets
    return targets._replace(present=present)
