"""renumbered: a state whose features have other numbers, as a state of the same rows, mapped otherwise, would have them.

Cost: a copy of the state. Why this way: what stands where in a state is told here once, by class and field.
"""

from typing import Any

import numpy as np

from stream_dr.errors import CannotMerge
from stream_dr.statistics.feature_counts import FeatureCounts
from stream_dr.statistics.moments.centred_part import CentredPart
from stream_dr.statistics.moments.class_scatter import ClassScatter
from stream_dr.statistics.moments.label_sets import LabelSets
from stream_dr.statistics.moments.largest import Largest
from stream_dr.statistics.moments.sparse_sums import SparsePart
from stream_dr.statistics.moments.state import MomentState
from stream_dr.statistics.protocol import Absent
from stream_dr.statistics.reservoir import Reservoir

_AXES: dict[type, dict[str, tuple[int, ...]]] = {
    SparsePart: {"features": (0,), "cross": (0,)},
    CentredPart: {"mean": (0,), "low": (0,), "diagonal": (0,), "scatter": (0, 1), "cross": (0,), "nonzero": (0,)},
    ClassScatter: {"mean": (1,), "low": (1,), "scatter": (1, 2)},
    Largest: {"features": (0,)},
    FeatureCounts: {"present": (0,), "counts": (0,)},
}
"""Which axes of a field's array are features."""


def renumbered(state: Any, goes: np.ndarray, width: int) -> Any:
    """`state` with feature i called goes[i] (features,) int64 of `width` ones. Raises CannotMerge where it keeps rows or
    components that have no numbers of their own."""
    if isinstance(state, MomentState):
        parts = {
            name: renumbered(getattr(state, name), goes, width) for name in ("features", "class_scatter", "label_sets")
        }
        return state._replace(n_features=width, largest=renumbered(state.largest, goes, width), **parts)
    if isinstance(state, Absent):
        return state
    if isinstance(state, Reservoir):
        return _reservoir(state, goes, width)
    if isinstance(state, LabelSets):
        return state.renumbered(goes, width)
    axes = _AXES.get(type(state))
    if axes is None:
        raise CannotMerge(
            f"a {type(state).__name__} of other columns cannot be merged: learn both with the same first rows."
        )
    fields = {name: _placed(getattr(state, name), of, goes, width) for name, of in axes.items()}
    return state._replace(**fields, **({"n_features": width} if isinstance(state, FeatureCounts) else {}))


def _placed(array: np.ndarray, axes: tuple[int, ...], goes: np.ndarray, width: int) -> np.ndarray:
    """The array with `width` features along each of the axes; one that is not kept as it is."""
    if any(array.shape[i] == 0 for i in axes):
        return array
    out = np.zeros(tuple(width if i in axes else n for i, n in enumerate(array.shape)), array.dtype)
    places = [goes[: array.shape[i]] if i in axes else np.arange(array.shape[i]) for i in range(array.ndim)]
    out[np.ix_(*places)] = array
    return out


def _reservoir(state: Reservoir, goes: np.ndarray, width: int) -> Reservoir:
    """A sample's rows are CSR behind a map of tables."""
    if not state.rows or state.indices is None:
        return state._replace(n_features=width)
    kept = state.kept.copy()
    kept.indices = goes[kept.indices].astype(np.int32)
    kept.has_sorted_indices = False
    kept.sort_indices()
    return state._replace(n_features=width, values=kept.data, indices=kept.indices, indptr=kept.indptr)
