"""Orientation: make a projection's components comparable with the previous projection's.

An eigenvector's sign is arbitrary, and two of nearly equal eigenvalue may come out swapped.
`orient` picks the signs and, among components whose eigenvalues are within 5 % of one another, the
order that agrees best with the previous projection. `least_squares_map` is the least-squares map between
the two, which carries the rest of the rotation [mathematics §9].

Two components w and w' agree as far as the rows' projections onto them are correlated, wᵀ Cxx w',
where Cxx is the scatter of the rows. It costs O(d p q) for the overlap of (d, q) with (d, p), and
Cxx times p + q columns.
"""

from collections.abc import Callable
from typing import cast

import numpy as np

from stream_dr.projection import Mapped, Orientable, Projection, linear_part
from stream_dr.solve.barycentre import Barycentre
from stream_dr.solve.eigenmap import Eigenmap
from stream_dr.solve.spectral import largest_entries

Product = Callable[[np.ndarray], np.ndarray]
"""Function of columns (features, m) that returns Cxx @ columns, up to a factor."""

GAP = 0.05
"""Relative distance of two eigenvalues below which they do not decide the order."""


def orient(
    loadings: np.ndarray, eigenvalues: np.ndarray, previous: np.ndarray | None, product: Product | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the order and signs in which components agree best with `previous`.

    Returns order (p,) int and signs (p,) of ±1.0, to be used as loadings[:, order] * signs.

    Parameters
    ----------
    loadings : (d, p) float64
    eigenvalues : (p,)
    previous : (d', q) float64 or None
        Previous loadings. Missing rows count as 0. If None, the largest entry of each component is
        made positive.
    product : callable or None
        Product with Cxx, by which components are compared. If None, the loadings themselves are.
    """
    p = loadings.shape[1]
    cosines = _cosines(previous, loadings, product) if previous is not None else np.zeros((0, p))
    order = _order(cosines, eigenvalues)

    shared = min(cosines.shape)
    towards = np.zeros(p)
    towards[:shared] = cosines[np.arange(shared), order[:shared]]
    if not towards.all():
        towards = np.where(towards != 0, towards, largest_entries(loadings)[order])
    return order, np.where(towards < 0, -1.0, 1.0)


def oriented(projection: Projection, previous: Projection | None, product: Product | None = None) -> Projection:
    """Return `projection` with the order and the signs of the components of `previous`.

    A projection without loadings and without places is returned as it is. Places of landmarks
    (reservoir methods) are compared with the places where `previous` puts the same rows, which
    costs O(r² · features).

    product: product with Cxx of the rows that the projection was solved from. Loadings are compared
    by it.
    """
    now, before = _compared_columns(projection, previous)
    if now is None:
        return projection
    orientable = cast(Orientable, projection)
    by_product = product if linear_part(projection) is not None else None
    order, signs = orient(now, orientable.eigenvalues, before, by_product)
    return orientable.oriented(order, signs)


def feature_places(previous: Projection, projection: Projection) -> np.ndarray:
    """Return the index in `projection` of each feature of `previous`.

    Returns (previous features,) int64. Features match by name if a feature map names the columns
    that it makes, and otherwise by number. Features that `projection` lacks come after all others.
    """
    old, new = _feature_names(previous), _feature_names(projection)
    if old is None or new is None:
        linear = linear_part(previous)
        return np.arange(0 if linear is None else len(linear.loadings))
    at = {name: number for number, name in enumerate(new)}
    for name in old:
        # A feature that `projection` lacks.
        at.setdefault(name, len(at))
    return np.array([at[name] for name in old], dtype=np.int64)


def move_rows(array: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Return an array with its rows moved to the indices `at` (rows,), and zeros between them."""
    if np.array_equal(at, np.arange(len(array))):
        return array
    moved = np.zeros((int(at.max(initial=-1)) + 1, *array.shape[1:]))
    moved[at] = array
    return moved


def _compared_columns(
    projection: Projection, previous: Projection | None
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return the columns, one a component, by which both projections are compared.

    They are the loadings, or the places of the landmarks. Both are None if the projection has
    neither. The second is None if `previous` cannot be compared.
    """
    now, before = linear_part(projection), linear_part(previous)
    if now is not None:
        if before is None or previous is None:
            return now.loadings, None
        # Features that `projection` lacks are dropped.
        return now.loadings, move_rows(before.loadings, feature_places(previous, projection))[: len(now.loadings)]

    embedding, last = _embedding(projection), _embedding(previous)
    if embedding is None or last is None:
        return embedding and embedding.places, None
    return embedding.places, last.apply(embedding.landmarks.rows)


def _embedding(projection: Projection | None) -> Eigenmap | Barycentre | None:
    """Return the embedding of landmarks in a projection, or None."""
    inner = projection.inner if isinstance(projection, Mapped) else projection
    return inner if isinstance(inner, Eigenmap | Barycentre) else None


def _feature_names(projection: Projection) -> tuple[str, ...] | None:
    return projection.feature_names if isinstance(projection, Mapped) else None


def least_squares_map(old: np.ndarray, new: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the map (q, p) that minimises ‖old · map − new‖, and that norm relative to ‖new‖.

    old: (d', q) float64. new: (d, p) float64. Missing rows count as 0. The norm is 0 if new lies in
    the span of old, and 1 if it is orthogonal to it.
    """
    old, new = _same_rows(old, new)
    if not old.shape[1] or not new.shape[1]:
        return np.zeros((old.shape[1], new.shape[1])), 1.0

    scales = column_norms(old)
    scales[scales == 0] = 1.0
    mapping = np.linalg.lstsq(old.T @ old / np.outer(scales, scales), old.T @ new / scales[:, None], rcond=None)[0]
    mapping /= scales[:, None]

    rest = float(np.linalg.norm(old @ mapping - new))
    size = float(np.linalg.norm(new))
    return mapping, rest / size if size else 0.0


def column_norms(array: np.ndarray) -> np.ndarray:
    """Return the length (columns,) of each column of an array (rows, columns)."""
    # A third of the time of np.linalg.norm.
    return np.sqrt(np.einsum("ij,ij->j", array, array))


def _order(cosines: np.ndarray, eigenvalues: np.ndarray) -> np.ndarray:
    """Return the order (p,) of components that agrees best with the previous ones.

    A component moves only to a place whose eigenvalue is within GAP of its own.
    """
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


def _cosines(old: np.ndarray, new: np.ndarray, product: Product | None = None) -> np.ndarray:
    """Return the cosines (q, p) of the angles between columns of old and new.

    With `product`, they are the correlations of the rows' projections onto these columns.
    """
    old, new = _same_rows(old, new)
    if product is None:
        sizes = np.outer(column_norms(old), column_norms(new))
        return (old.T @ new) / np.where(sizes > 0, sizes, 1.0)

    # The loadings' own inner product would be that of the features of least variance. Where Cxx is
    # inverted their loadings are the largest, and mostly noise.
    both = np.hstack([old, new])
    q = old.shape[1]
    products = both.T @ product(both)
    lengths = np.sqrt(np.maximum(np.diagonal(products), 0.0))
    sizes = np.outer(lengths[:q], lengths[q:])
    return products[:q, q:] / np.where(sizes > 0, sizes, 1.0)


def _same_rows(old: np.ndarray, new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    d = max(len(old), len(new))
    return _pad_rows(old, d), _pad_rows(new, d)


def _pad_rows(array: np.ndarray, rows: int) -> np.ndarray:
    if len(array) == rows:
        return array
    wide = np.zeros((rows, array.shape[1]))
    wide[: len(array)] = array
    return wide
