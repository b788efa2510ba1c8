"""Compare components with the components of another projection.

The sign of an eigenvector is arbitrary. Two components of nearly equal eigenvalue may also change
places from one solution to the next. `align_components` chooses signs and order such that each
component agrees best with the component of equal index in the previous projection. Only components
whose eigenvalues differ by at most 5 % are reordered.

`least_squares_map` returns the linear map that brings one projection's components closest to
another projection's components. This map describes the rotation that remains when signs and order
agree [mathematics §9].

Two components w and w' (features,) agree if the rows' projections onto them are correlated. The
correlation is computed from wᵀ Cxx w', where Cxx (features, features) is the scatter of the
centred rows. Comparing q components with p components costs O(d p q) for d features, and the
product of Cxx and p + q columns.

`principal_angles` compares the spaces that two projections' components span.
"""

from collections.abc import Callable
from typing import NamedTuple, cast

import numpy as np

from stream_dr.projection import (
    Linear,
    Mapped,
    Orientable,
    Projection,
    canonical_projection,
    linear_part_or_none,
    replace_linear_part,
)
from stream_dr.solve.embedding import BarycentricProjection, Eigenmap
from stream_dr.solve.spectral import largest_signed_entries, tall_qr

MultiplyByScatter = Callable[[np.ndarray], np.ndarray]
"""Function that multiplies m columns (features, m) by the scatter of the centred rows.

The scatter (features, features) may be scaled by a constant factor. The result is (features, m).
"""


GAP = 0.05
"""Relative difference of two eigenvalues up to which their components may be swapped."""


def align_components(
    loadings: np.ndarray,
    eigenvalues: np.ndarray,
    previous: np.ndarray | None,
    multiply_by_scatter: MultiplyByScatter | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Choose components' order and signs that agree best with `previous`.

    Returns the order (p,) of indices and the signs (p,) of ±1.0. The reordered components are
    loadings[:, order] * signs.

    Parameters
    ----------
    loadings : (d, p) float64
        Loadings of d features in p components.
    eigenvalues : (p,)
        Eigenvalues of the components.
    previous : (d', q) float64 or None
        Previous loadings of d' features in q components. If d and d' differ, the array with fewer
        rows is extended by rows of zeros. If there are no previous loadings, the signs make the
        entry of largest absolute value in each component positive.
    multiply_by_scatter : callable or None
        Function that multiplies m columns (features, m) by the scatter (features, features) of the
        centred rows. Components are then compared by their correlation over the rows. If None, the
        loadings themselves are compared.
    """
    # `cosines` (q, p) compares each of q previous components with each of p components.
    p = loadings.shape[1]
    if previous is not None:
        cosines = _pairwise_cosines(previous, loadings, multiply_by_scatter)
    else:
        cosines = np.zeros((0, p))
    order = _best_order(cosines, eigenvalues)

    # `towards` (p,) has one number for each component, which the component's sign makes positive.
    # It is the cosine with the previous component of the same index. If there is no such component
    # or the cosine is 0, it is the component's entry of largest absolute value.
    # The first `shared` components have a previous component of the same index.
    shared = min(cosines.shape)
    towards = np.zeros(p)
    towards[:shared] = cosines[np.arange(shared), order[:shared]]
    if not towards.all():
        towards = np.where(towards != 0, towards, largest_signed_entries(loadings)[order])
    return order, np.where(towards < 0, -1.0, 1.0)


def orient_components(
    projection: Projection, previous: Projection | None, multiply_by_scatter: MultiplyByScatter | None = None
) -> Projection:
    """Return `projection` with its components matched to the previous projection.

    Components are reordered and their signs are changed, so that they agree best with the
    components of `previous`.

    * Two linear projections are compared by their loadings.
    * Two embeddings (projections that place a row by its distances to r sampled rows, the
      landmarks) are compared by coordinates. Both project the landmarks of `projection`, and the
      two results are compared. This costs O(r² · features).
    * If the two projections are of different kinds, or `previous` is None, the order stays, and
      signs follow a fixed rule.
    * A projection that is neither linear nor an embedding is returned unchanged.

    multiply_by_scatter: function that multiplies m columns (features, m) by the scatter (features,
        features) of the rows from which `projection` was solved. If not None, components of linear
        projections are compared by their correlation over these rows.
    """
    # The arrays have a column for each component: loadings, or coordinates of landmarks.
    # A projection with such an array can reorder its components.
    columns, previous_columns = _comparable_arrays(projection, previous)
    if columns is None:
        return projection
    orientable = cast(Orientable, projection)

    # Only loadings can be multiplied by the scatter, which has a row for each feature.
    scatter_product = None
    if linear_part_or_none(projection) is not None:
        scatter_product = multiply_by_scatter
    order, signs = align_components(columns, orientable.eigenvalues, previous_columns, scatter_product)
    return orientable.orient_components(order, signs)


def turn_to_release(
    projection: Projection,
    release: Projection | None,
    multiply_by_scatter: MultiplyByScatter,
    n_components: int,
) -> Projection:
    """Return a linear projection, turned to the components of a release.

    A release is an earlier projection that stays in use, to whose q components new ones are
    matched. The p components of `projection` are rotated within their span. Without a release, they
    keep their order. Of the n_components columns of the result,

    * q are as near to the components of the release as possible, and at the same indices,
    * if p > q, p − q are orthogonal to these, with the largest eigenvalue first. Their signs make
      the entry of largest absolute value in each component positive,
    * the others are zeros.

    The result has the loadings W R. W (features, p) are the loadings of `projection`, and R (p,
    n_components) is the rotation. With the loadings W₀ (features, q) of the release and the scatter
    C of the rows, the first part of R is U Vᵀ, where U Σ Vᵀ is the thin singular value
    decomposition of Wᵀ C W₀. Costs O(d p q) for d features, and the product of C and q columns.
    """
    linear = cast(Linear, linear_part_or_none(projection))
    loadings = linear.loadings
    p = linear.n_components
    turn = np.zeros((p, n_components))
    released = None if release is None else _comparable_arrays(projection, release).previous
    if released is None or not released.any():
        turn[:, :p] = np.eye(p)
        return replace_linear_part(projection, linear.turned(turn))

    # The first columns of R. `places` are the indices of the components of the release.
    places = np.flatnonzero(released.any(axis=0))
    released = _pad_rows(released[:, places], len(loadings))
    left, _, right = np.linalg.svd(loadings.T @ multiply_by_scatter(released))
    q = len(places)
    shared = min(p, q)
    turn[:, places] = left[:, :shared] @ right[:shared]

    # The other columns. `rest` (p, p − q) is orthogonal to the first ones.
    rest = left[:, shared:]
    _, vectors = np.linalg.eigh(rest.T @ (linear.eigenvalues[:, None] * rest))
    rest = rest @ vectors[:, ::-1]
    signs = np.where(largest_signed_entries(loadings @ rest) < 0, -1.0, 1.0)
    free = np.setdiff1d(np.arange(n_components), places)
    turn[:, free[: rest.shape[1]]] = rest * signs
    return replace_linear_part(projection, linear.turned(turn))


def place_previous_features(previous: Projection, projection: Projection) -> np.ndarray:
    """Return the index of each previous feature in `projection`.

    The result is (features of `previous`,). If both projections have a feature map that names its
    columns, features are matched by name. If not, features are matched by index. A feature that
    `projection` does not have gets an index after the last feature of `projection`.
    """
    old = _mapped_column_names(previous)
    new = _mapped_column_names(projection)
    if old is None or new is None:
        # Without names, a feature has the same index in both. Only linear projections have
        # loadings.
        linear = linear_part_or_none(previous)
        n_features = 0 if linear is None else len(linear.loadings)
        return np.arange(n_features)

    index_of = {name: index for index, name in enumerate(new)}
    for name in old:
        # A feature that only `previous` has gets the next free index.
        index_of.setdefault(name, len(index_of))
    return np.array([index_of[name] for name in old], dtype=np.int64)


def move_rows(array: np.ndarray, new_indices: np.ndarray) -> np.ndarray:
    """Return an array with each row moved to another index.

    Rows of the result to which no row is moved are zero. If no index changes, `array` is returned
    without a copy.

    new_indices: (rows,), new index of each row of `array`.
    """
    if np.array_equal(new_indices, np.arange(len(array))):
        return array
    length = int(new_indices.max(initial=-1)) + 1
    moved = np.zeros((length, *array.shape[1:]))
    moved[new_indices] = array
    return moved


class _ComparedColumns(NamedTuple):
    """Arrays by which the components of two projections are compared.

    Each array has one column for each component: loadings, or coordinates of sampled rows.
    """

    projection: np.ndarray | None
    previous: np.ndarray | None


def _comparable_arrays(projection: Projection, previous: Projection | None) -> _ComparedColumns:
    """Return two arrays by which two projections are compared.

    Each array has one column for each component. The first array is for `projection`, and the
    second array for `previous`.

    * Two linear projections are compared by their loadings.
    * Two projections by landmarks (sampled rows) are compared by the coordinates of the landmarks
      of `projection`.
    * If the projections are of different kinds, or `previous` is None, the second result is None.
    * If `projection` is of any other kind, both results are None.
    """
    now = linear_part_or_none(projection)
    before = linear_part_or_none(previous)
    if now is not None:
        # `before` is None if `previous` is None or is not linear.
        if before is None or previous is None:
            return _ComparedColumns(now.loadings, None)
        # Put the features of `previous` in the order of `projection`, and other features last.
        # Then cut off the loadings of features that `projection` does not have.
        moved = move_rows(before.loadings, place_previous_features(previous, projection))
        return _ComparedColumns(now.loadings, moved[: len(now.loadings)])

    # `places` are the coordinates of the landmarks, by which new rows are placed.
    embedding = _landmark_embedding(projection)
    if embedding is None:
        return _ComparedColumns(None, None)
    last = _landmark_embedding(previous)
    if last is None:
        return _ComparedColumns(embedding.places, None)
    return _ComparedColumns(embedding.places, last.apply(embedding.landmarks.rows))


def _landmark_embedding(projection: Projection | None) -> Eigenmap | BarycentricProjection | None:
    """Return a projection's embedding of landmarks, or None.

    Landmarks are sampled rows of the stream. The result is None for a projection of another kind.
    """
    # A Mapped projection is a feature map, followed by a projection of the mapped rows (`inner`).
    inner = projection
    if isinstance(projection, Mapped):
        inner = projection.inner
    if isinstance(inner, Eigenmap | BarycentricProjection):
        return inner
    return None


def _mapped_column_names(projection: Projection) -> tuple[str, ...] | None:
    """Return the feature map's column names, or None without names."""
    # A projection without a feature map has none, and some maps do not name their columns.
    if isinstance(projection, Mapped):
        return projection.feature_names
    return None


def least_squares_map(
    old: np.ndarray, new: np.ndarray, multiply_by_scatter: MultiplyByScatter = lambda columns: columns
) -> tuple[np.ndarray, float]:
    """Return the least-squares map from `old` to `new`, and its error.

    The map is the matrix M (q, p) that minimises ‖old @ M − new‖. The error is this norm divided
    by ‖new‖. The error is 0 if the columns of `new` lie in the span of the columns of `old`. The
    error is 1 if the two spans are orthogonal.

    old: (d', q) float64, q columns.
    new: (d, p) float64, p columns. If d and d' differ, the array with fewer rows is extended by
        rows of zeros.
    multiply_by_scatter: function that multiplies columns by the scatter C of the rows. The squared
        norm of columns A is then the trace of Aᵀ C A. By default C is the identity.
    """
    # Without columns in one of the arrays, nothing is mapped, so the error is the largest.
    old, new = pad_to_equal_rows(old, new)
    if not old.shape[1] or not new.shape[1]:
        return np.zeros((old.shape[1], new.shape[1])), 1.0

    # Scale the columns of `old` to length 1, so that long columns do not hide short ones.
    # M solves the normal equations oldᵀ C old M = oldᵀ C new.
    scales = column_norms(old)
    scales[scales == 0] = 1.0
    gram = old.T @ multiply_by_scatter(old) / np.outer(scales, scales)
    right_sides = old.T @ multiply_by_scatter(new) / scales[:, None]
    mapping = np.linalg.lstsq(gram, right_sides, rcond=None)[0]
    mapping /= scales[:, None]

    rest = old @ mapping - new
    squared_error = float(np.vdot(rest, multiply_by_scatter(rest)))
    squared_size = float(np.vdot(new, multiply_by_scatter(new)))
    if not new.any():
        return mapping, 0.0
    # If the rows do not vary along `new`, nothing is known of it, so the error is the largest.
    if not squared_size > 0:
        return mapping, 1.0
    return mapping, float(np.sqrt(max(squared_error, 0.0) / squared_size))


def column_norms(array: np.ndarray) -> np.ndarray:
    """Return the length (columns,) of each column of an array."""
    # Compute the column lengths by einsum, which takes a third of the time of np.linalg.norm.
    return np.asarray(np.sqrt(np.einsum("ij,ij->j", array, array)))


def _best_order(cosines: np.ndarray, eigenvalues: np.ndarray) -> np.ndarray:
    """Return the order of components that best matches previous components.

    The order is (p,) for p components. Entry i of the order is the index of the component that
    becomes component i. Two components may be swapped only if the relative difference of their
    eigenvalues is at most GAP.

    cosines: (q, p), cosine of the angle between each of q previous components and each of p
        components.
    eigenvalues: (p,), eigenvalues of the p components.
    """
    from scipy.optimize import linear_sum_assignment

    # With fewer than two previous components there is nothing to swap.
    # Without one eigenvalue per component, it is unknown which swaps are allowed.
    q, p = cosines.shape
    order = np.arange(p)
    shared = min(q, p)
    if shared < 2 or len(eigenvalues) != p:
        return order

    # Choose the order with the largest sum of absolute cosines to previous components.
    # A very negative gain prevents a swap of components whose eigenvalues are not near each other:
    # the cosines of an order add up to at most `shared`, so they cannot outweigh −2 · shared.
    values = np.asarray(eigenvalues[:shared], dtype=np.float64)
    sizes = np.abs(values)
    larger = np.maximum(sizes[:, None], sizes)
    near = np.abs(values[:, None] - values) <= GAP * larger
    # scipy assigns a component (column of `gain`) to each previous component (row).
    gain = np.where(near, np.abs(cosines[:shared, :shared]), -2.0 * shared)
    order[:shared] = linear_sum_assignment(gain, maximize=True)[1]
    return order


def _pairwise_cosines(
    old: np.ndarray, new: np.ndarray, multiply_by_scatter: MultiplyByScatter | None = None
) -> np.ndarray:
    """Return the cosines between columns of `old` and of `new`.

    The result is (q, p). With `multiply_by_scatter`, correlations are returned instead.

    old: (d', q), loadings of d' features in q previous components. Missing rows count as zeros.
    new: (d, p), loadings of d features in p components. Missing rows count as zeros.
    multiply_by_scatter: function that multiplies columns by the scatter of the centred rows. If
        not None, the correlations of the rows' projections onto the columns are returned, not the
        cosines.
    """
    old, new = pad_to_equal_rows(old, new)
    # A column of zeros has the cosine 0 with every column.
    if multiply_by_scatter is None:
        sizes = np.outer(column_norms(old), column_norms(new))
        return np.asarray((old.T @ new) / np.where(sizes > 0, sizes, 1.0))

    # Compare columns by the correlation of the rows projected onto them.
    # Features of small variance, whose loadings are noisy, then have little influence.
    # Of all correlations (q + p, q + p), the block [:q, q:] is between `old` and `new`.
    q = old.shape[1]
    return correlations_of_projected_rows(np.hstack([old, new]), multiply_by_scatter)[:q, q:]


def correlations_of_projected_rows(directions: np.ndarray, multiply_by_scatter: MultiplyByScatter) -> np.ndarray:
    """Return the correlations (m, m) of rows projected onto m directions.

    directions: (features, m), directions onto which the rows are projected.
    multiply_by_scatter: function that multiplies m columns (features, m) by the centred rows'
        scatter.
    """
    # Directions along which the rows do not vary have the correlation 0 with every direction.
    products = directions.T @ multiply_by_scatter(directions)
    lengths = np.sqrt(np.maximum(np.diagonal(products), 0.0))
    sizes = np.outer(lengths, lengths)
    return np.asarray(products / np.where(sizes > 0, sizes, 1.0))


def pad_to_equal_rows(old: np.ndarray, new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return two arrays of equal numbers of rows.

    Rows of zeros are added to the array of fewer rows.

    old: (d', q), d' rows of q columns.
    new: (d, p), d rows of p columns.
    """
    d = max(len(old), len(new))
    return _pad_rows(old, d), _pad_rows(new, d)


def _pad_rows(array: np.ndarray, n_rows: int) -> np.ndarray:
    """Return the array, extended by rows of zeros to `n_rows` rows."""
    if len(array) == n_rows:
        return array
    wide = np.zeros((n_rows, array.shape[1]))
    wide[: len(array)] = array
    return wide


def principal_angles(before: Projection, after: Projection) -> np.ndarray | None:
    """Return the principal angles between two projections' components.

    The angles (p,) are between the two spaces that the loadings span, in radians, ascending. If
    only one projection has a feature, the other projection's loadings of this feature count as 0.
    Returns None if a projection is not linear or has no components.
    """
    # Loadings that are turned to a release may have columns of zeros, which span nothing. The
    # canonical projection is the one before it was turned.
    old = linear_part_or_none(canonical_projection(before))
    new = linear_part_or_none(canonical_projection(after))
    if old is None or new is None or not old.n_components or not new.n_components:
        return None

    # `first` (d, p) and `second` (d, q) are orthonormal bases of the two spaces, for d features.
    first, second = (tall_qr(loadings)[0] for loadings in pad_to_equal_rows(old.loadings, new.loadings))

    # Compute the cosine and the sine of each principal angle, in ascending order of the angles.
    # The sines are the singular values of the smaller basis's part outside the larger space.
    cosines = np.clip(np.linalg.svd(first.T @ second, compute_uv=False), 0.0, 1.0)
    wide, narrow = (first, second) if first.shape[1] >= second.shape[1] else (second, first)
    outside = narrow - wide @ (wide.T @ narrow)
    sines = np.clip(np.linalg.svd(outside, compute_uv=False)[::-1], 0.0, 1.0)

    # Arcsine is accurate for small angles, arccosine for large angles.
    is_small = cosines**2 > 0.5
    return np.asarray(np.where(is_small, np.arcsin(sines), np.arccos(cosines)))
