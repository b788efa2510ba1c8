"""Copies of states in which the features have other numbers.

The copy equals the state that is obtained if the features are renumbered first and the rows are
learned afterwards.
"""

from typing import Any

import numpy as np

from stream_dr.errors import CannotMerge
from stream_dr.statistics.moments.centred_part import CentredPart
from stream_dr.statistics.moments.class_scatter import ClassScatter
from stream_dr.statistics.moments.folds import FoldedState
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
}
"""Axes that run over features, for each array of each class of states.

The keys are the classes and the names of their fields.
"""


def renumber_features(state: Any, new_index: np.ndarray, n_features: int) -> Any:
    """Return a copy of the state with renumbered features.

    Raises CannotMerge if the state's class is not supported.

    new_index: (features,) int64, the new index of each feature.
    n_features: number of features of the result.
    """
    # If the state consists of other states, renumber the features of each of them.
    if isinstance(state, MomentState):
        names = ("features", "class_scatter", "label_sets", "largest")
        parts = {name: renumber_features(getattr(state, name), new_index, n_features) for name in names}
        return state._replace(n_features=n_features, **parts)
    if isinstance(state, FoldedState):
        return state._replace(parts=tuple(renumber_features(part, new_index, n_features) for part in state.parts))
    if isinstance(state, Absent):
        return state
    if isinstance(state, Reservoir):
        return _renumber_reservoir(state, new_index, n_features)
    if isinstance(state, LabelSets):
        return state.renumbered(new_index, n_features)

    # Find the axes over features of each array, because the state's fields are arrays here.
    axes = _AXES.get(type(state))
    if axes is None:
        name = type(state).__name__
        raise CannotMerge(f"a {name} of other columns cannot be merged: learn both with the same first rows.")
    fields = {name: _renumber_axes(getattr(state, name), of, new_index, n_features) for name, of in axes.items()}
    return state._replace(**fields)


def _renumber_axes(array: np.ndarray, axes: tuple[int, ...], new_index: np.ndarray, n_features: int) -> np.ndarray:
    """Return a copy of the array with renumbered features.

    An empty array is returned unchanged.

    axes: axes of the array that run over features.
    new_index: (features,) new index of each feature.
    n_features: number of features of the result.
    """
    if any(array.shape[i] == 0 for i in axes):
        return array
    out = np.zeros(tuple(n_features if i in axes else n for i, n in enumerate(array.shape)), array.dtype)
    places = [new_index[: array.shape[i]] if i in axes else np.arange(array.shape[i]) for i in range(array.ndim)]
    out[np.ix_(*places)] = array
    return out


def _renumber_reservoir(state: Reservoir, new_index: np.ndarray, n_features: int) -> Reservoir:
    """Return a sample of rows with renumbered features.

    The result is a copy. Dense rows do not change. (Features are renumbered only for rows of
    tables, which are CSR.)

    new_index: (features,) new index of each feature.
    n_features: number of features of the result.
    """
    if not state.rows or state.indices is None:
        return state._replace(n_features=n_features)
    rows = state.kept.copy()
    rows.indices = new_index[rows.indices].astype(np.int32)
    rows.has_sorted_indices = False
    rows.sort_indices()
    return state._replace(n_features=n_features, values=rows.data, indices=rows.indices, indptr=rows.indptr)
