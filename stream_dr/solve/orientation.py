"""Orientation: keep a projection's components comparable with those of the one before it (mathematics §9).

An eigenvector's sign is arbitrary, and two of nearly equal eigenvalue may come out swapped. `orient` picks the signs
and, among components whose eigenvalues are within 5 % of one another, the order that agree best with the predecessor;
`alignment` is the least-squares map between the two, which carries what rotation is left.

Two components agree as far as what they project rows to is correlated: wᵀ Cxx w'. The loadings' own inner product would be
that of the features of least variance, whose loadings are largest where Cxx is inverted and mostly noise.

Cost: O(d p q) for the overlap of (d, q) with (d, p), and Cxx times p + q columns.

Why this way: order is changed only where the eigenvalues do not decide it, so components stay sorted wherever that
means anything; the very first projection makes its largest loading positive.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

Product = Callable[[np.ndarray], np.ndarray]
"""Columns (features, m) → Cxx @ columns, up to a factor."""

GAP = 0.05
"""Relative distance of two eigenvalues below which their order is not decided by them."""


def orient(
    loadings: np.ndarray, eigenvalues: np.ndarray, previous: np.ndarray | None, spread: Product | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """An order (p,) int and signs (p,) ±1.0 such that loadings[:, order] * signs agrees with `previous`.

    loadings: (d, p) float64. eigenvalues: (p,). previous: (d', q) float64 or None; missing rows count as 0. spread: the
    product with Cxx, by which they are compared; None: the loadings themselves are.
    """
    p = loadings.shape[1]
    cosines = _cosines(previous, loadings, spread) if previous is not None else np.zeros((0, p))
    order = _order(cosines, eigenvalues)
    towards, shared = np.zeros(p), min(cosines.shape)
    towards[:shared] = cosines[np.arange(shared), order[:shared]]
    if not towards.all():
        towards = np.where(towards != 0, towards, largest_entries(loadings)[order])
    return order, np.where(towards < 0, -1.0, 1.0)


def largest_entries(loadings: np.ndarray) -> np.ndarray:
    """Each column's entry of largest size (p,), the first of several; of no rows 0. Two passes over (d, p), no copy."""
    if len(loadings) == 0:
        return np.zeros(loadings.shape[1])
    low, high = _down(np.minimum, loadings), _down(np.maximum, loadings)
    largest = np.where(high > -low, high, low)
    for j in np.flatnonzero(high == -low):
        largest[j] = loadings[np.abs(loadings[:, j]).argmax(), j]
    return largest


def _down(extreme: np.ufunc, array: np.ndarray) -> np.ndarray:
    """Each column's extreme (columns,), of at least one row.

        Some rows of a C-ordered array are taken as one long one first: numpy goes down it row by row, and for few
    columns spends nearly all of its time on beginning each row.
    """
    rows, columns = array.shape
    if not array.flags.c_contiguous or not columns:
        return np.asarray(extreme.reduce(array, axis=0))
    together = min(rows, max(1, 256 // columns))
    whole = rows // together * together
    long = extreme.reduce(array[:whole].reshape(-1, together * columns), axis=0).reshape(together, columns)
    return np.asarray(extreme.reduce(np.concatenate([long, array[whole:]]), axis=0))


def oriented(projection: Any, previous: Any, spread: Product | None = None) -> Any:
    """`projection` with its components in the order and with the signs of `previous`; as it is where it has none to choose.

    spread: the product with Cxx of the rows it was solved from; loadings are compared by it. Landmarks (reservoir methods)
    are compared by their places with those that `previous` gives the same rows: O(r² · features).
    """
    now, before = _compared(projection, previous)
    if now is None or not hasattr(projection, "oriented"):
        return projection
    order, signs = orient(now, projection.eigenvalues, before, spread if hasattr(projection, "loadings") else None)
    return projection.oriented(order, signs)


def places(previous: Any, projection: Any) -> np.ndarray:
    """Where each column of the rows that `previous` is of stands among those that `projection` is of, (columns then,)
    int64: by name where a feature map names the columns that it makes, else by number. Those that are gone come after all
    others."""
    old, new = getattr(previous, "feature_names", None), getattr(projection, "feature_names", None)
    if old is None or new is None:
        return np.arange(len(previous.loadings))
    at = {name: number for number, name in enumerate(new)}
    for name in old:
        at.setdefault(name, len(at))  # one that is gone
    return np.array([at[name] for name in old], dtype=np.int64)


def placed(array: np.ndarray, at: np.ndarray) -> np.ndarray:
    """An array's rows at other places (rows,), zeros between them."""
    if np.array_equal(at, np.arange(len(array))):
        return array
    moved = np.zeros((int(at.max(initial=-1)) + 1, *array.shape[1:]))
    moved[at] = array
    return moved


def _compared(projection: Any, previous: Any) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Columns, one a component, that tell how the two agree: loadings, or the landmarks' places."""
    loadings = getattr(projection, "loadings", None)
    if loadings is not None:
        before = getattr(previous, "loadings", None)
        if before is None:
            return loadings, None
        return loadings, placed(before, places(previous, projection))[: len(loadings)]  # but for columns that are gone
    inner, last = getattr(projection, "inner", projection), getattr(previous, "inner", previous)
    landmarks = getattr(inner, "places", None)
    if landmarks is None or getattr(last, "places", None) is None:
        return landmarks, None
    return landmarks, last.apply(inner.landmarks.rows)


def alignment(old: np.ndarray, new: np.ndarray) -> tuple[np.ndarray, float]:
    """The map (q, p) that minimises ‖old · map − new‖, and that norm relative to ‖new‖.

    old: (d', q), new: (d, p) float64; missing rows count as 0. 0 means new lies in old's span, 1 that nothing of it
    does.
    """
    old, new = _same_rows(old, new)
    if not old.shape[1] or not new.shape[1]:
        return np.zeros((old.shape[1], new.shape[1])), 1.0
    scales = column_norms(old)
    scales[scales == 0] = 1.0
    found = np.linalg.lstsq(old.T @ old / np.outer(scales, scales), old.T @ new / scales[:, None], rcond=None)[0]
    found /= scales[:, None]
    left = float(np.linalg.norm(old @ found - new))
    size = float(np.linalg.norm(new))
    return found, left / size if size else 0.0


def column_norms(array: np.ndarray) -> np.ndarray:
    """Lengths (columns,) of the columns of (rows, columns): np.linalg.norm's, in a third of the time."""
    return np.sqrt(np.einsum("ij,ij->j", array, array))


def _order(cosines: np.ndarray, eigenvalues: np.ndarray) -> np.ndarray:
    """A permutation that moves a component only to a place whose eigenvalue is within GAP of its own."""
    from scipy.optimize import linear_sum_assignment

    q, p = cosines.shape
    order = np.arange(p)
    shared = min(q, p)
    if shared < 2 or len(eigenvalues) != p:
        return order
    values = np.asarray(eigenvalues[:shared], dtype=np.float64)
    near = np.abs(values[:, None] - values) <= GAP * np.maximum(np.abs(values[:, None]), np.abs(values))
    gain = np.where(near, np.abs(cosines[:shared, :shared]), -2.0 * shared)
    order[:shared] = linear_sum_assignment(gain, maximize=True)[1]
    return order


def _cosines(old: np.ndarray, new: np.ndarray, spread: Product | None = None) -> np.ndarray:
    """(q, p) cosines of the angles between columns; with `spread` correlations of what rows are projected to by them."""
    old, new = _same_rows(old, new)
    if spread is None:
        sizes = np.outer(column_norms(old), column_norms(new))
        return (old.T @ new) / np.where(sizes > 0, sizes, 1.0)
    both, q = np.hstack([old, new]), old.shape[1]
    products = both.T @ spread(both)
    lengths = np.sqrt(np.maximum(np.diagonal(products), 0.0))
    sizes = np.outer(lengths[:q], lengths[q:])
    return products[:q, q:] / np.where(sizes > 0, sizes, 1.0)


def _same_rows(old: np.ndarray, new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    d = max(len(old), len(new))
    return _padded(old, d), _padded(new, d)


def _padded(array: np.ndarray, rows: int) -> np.ndarray:
    if len(array) == rows:
        return array
    wide = np.zeros((rows, array.shape[1]))
    wide[: len(array)] = array
    return wide
