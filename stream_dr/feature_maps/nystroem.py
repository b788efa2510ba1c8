"""Nyström feature map: coordinates of rows on landmark rows.

Williams and Seeger (2001) describe the method. Landmarks are some of the rows, with which all rows
are compared by a kernel k. Let Z be the landmarks and L the Cholesky factor of their kernel
matrix k(Z, Z). The coordinates (landmarks,) of a row x are

    φ(x) = L⁻¹ k(Z, x)

The inner product φ(x)ᵀφ(x') of two rows x and x' approximates their kernel k(x, x'). If all rows
are landmarks, the inner products are exact, and an estimator with this map is the kernel method.

The landmarks are listed in the map's spec, or are drawn from the first rows of the stream. How the
rows are divided into batches does not change which rows are drawn. A row is skipped if nearly all
of it (up to 1e-8 of its squared length) is in the span of the earlier landmarks. The map would
amplify the rounding errors of such a row.

Landmarks are added while rows are learned. A row that was learned before a landmark was added
counts as having the coordinate 0 on this landmark.

Mapping a row costs one kernel value for each landmark, and O(landmarks²). The map stores the
landmarks, and a factor of 8 · landmarks² bytes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from stream_dr.batch.block import Block, Rows, check_finite
from stream_dr.batch.matrix import as_rows
from stream_dr.batch.sparse import (
    pad_with_zero_columns,
    rows_from_fields,
    sparse_rows_to_dicts,
    stack_rows,
    stored_row_fields,
)
from stream_dr.checks import (
    ROW_COUNT_LIMIT,
    check_dtype_and_shapes,
    check_field_equals,
    check_finite_arrays,
    check_stored_rows,
    check_within,
    field_error,
)
from stream_dr.errors import InvalidParameter, StreamDRError, width_mismatch
from stream_dr.feature_maps.feature_map import (
    FeatureMap,
    check_nu,
    check_seed_or_none,
    draw_uniforms,
    is_finite_number,
    is_integer_within,
    matern,
)

KERNELS = ("rbf", "laplace", "matern", "polynomial", "linear")
"""Names of the kernels."""

MOST_LANDMARKS = 20_000
"""Largest number of landmarks (rows that other rows are compared with).

The Cholesky factor of their kernel matrix takes 8 · landmarks² bytes.
"""

_LANDMARK_DRAW, _AT_ONCE = 23, 256
"""Constants for drawing landmarks (rows that other rows are compared with).

_LANDMARK_DRAW: number that identifies this use of random numbers (`purpose_id` in feature_map.py).
_AT_ONCE: largest number of rows that are added to the landmarks at a time.
"""

# Largest share of a row's squared length outside the earlier landmarks' span that counts as 0.
# A row with at most this share does not become a landmark.
_DEPENDENT = 1e-8
_EPS = float(np.finfo(np.float64).eps)
_WIDEST_DENSE = 4096


class Landmarks(NamedTuple):
    """Landmark rows, with the Cholesky factor of their kernel matrix.

    Landmarks are rows of the stream with which all rows are compared by the kernel.

    Attributes
    ----------
    seen : int
        Number of rows of the stream that could have become landmarks.
    picked : int
        Number of rows that were drawn as landmarks. Some of them were then skipped, because they
        lie in the span of the other landmarks.
    n_features : int
        Number of features of the rows.
    factor : ndarray (landmarks, landmarks)
        Cholesky factor L of the kernel matrix, float64.
    values : ndarray (landmarks, features), or (entries,) if sparse
        The landmarks, or the values of their CSR matrix if they are sparse. float64.
    indices : ndarray (entries,) or None
        int32 column indices of the CSR matrix. None if the landmarks are dense.
    indptr : ndarray (landmarks + 1,) or None
        int64 row ends of the CSR matrix. None if the landmarks are dense.
    """

    seen: int
    picked: int
    n_features: int
    factor: np.ndarray
    values: np.ndarray
    indices: np.ndarray | None = None
    indptr: np.ndarray | None = None

    def check(self, n_features: int, max_landmarks: int) -> None:
        """Raise DamagedFile unless the landmarks are valid.

        The shapes of the landmarks' rows and of `factor` must fit the numbers of features and
        landmarks.

        n_features: number of features.
        max_landmarks: largest number of landmarks.
        """
        # Of the first `seen` rows of the stream, `picked` were drawn. Some of them became
        # landmarks. `factor` (m, m) is the Cholesky factor of the kernel matrix of the m landmarks.
        check_field_equals(self, "n_features", n_features)
        check_within(self, 0, ROW_COUNT_LIMIT, "seen", "picked")
        # There are at most `max_landmarks` landmarks. If `factor` has more rows, its shape is
        # refused. `picked` may be larger than m, because not every row that was drawn becomes a
        # landmark.
        m = min(len(self.factor), max_landmarks)
        check_dtype_and_shapes(self, np.float64, factor=(m, m))
        check_finite_arrays(self, "factor")
        if not (np.diagonal(self.factor) > 0.0).all():
            raise field_error(self, "factor", "not above 0 on the diagonal", "a Cholesky factor")
        check_stored_rows(self, m, n_features)

    @property
    def rows(self) -> Rows:
        """The landmark rows (landmarks, features) as an ndarray or CSR."""
        return rows_from_fields(self.values, self.indices, self.indptr, self.n_features)

    def has_same_rows(self, other: "Landmarks") -> bool:
        """Return True if `other` has equal rows in equal order."""
        return _rows_as_hashable_bytes(self.rows) == _rows_as_hashable_bytes(other.rows)

    def any_is_row_of(self, X: Rows) -> bool:
        """Return True if any row of X is a landmark.

        X: (rows, features), dense or CSR.
        """
        landmarks = set(_rows_as_hashable_bytes(self.rows))
        return not landmarks.isdisjoint(_rows_as_hashable_bytes(X))


@dataclass(frozen=True)
class Nystroem(FeatureMap):
    """Map of rows to coordinates on landmark rows.

    The inner product of two mapped rows approximates the kernel of the two original rows.

    Attributes
    ----------
    landmarks : int or list
        Number of landmarks to draw from the first rows, or the landmarks themselves. A landmark is
        a list of numbers or, if sparse, a dict {"indices": […], "values": […]}.
    kernel : str
        "rbf" exp(−γ|x − x'|²), "laplace" exp(−γ|x − x'|₁), "matern" (feature_map.py), "polynomial"
        (γ xᵀx' + coef0)^degree, or "linear" xᵀx'.
    gamma : float
        Parameter γ of the kernel, above 0.
    degree : int
        Degree of the polynomial kernel.
    coef0 : float
        Constant of the polynomial kernel.
    first : int or None
        Number of rows at the start of the stream from which landmarks are drawn. None means as
        many rows as landmarks, so that each of these rows is drawn.
    seed : int
        Seed of the draws.
    nu : float
        Smoothness ν of the Matérn kernel, above 0 and at most 100.
    """

    landmarks: int | Sequence[Any] = 500
    kernel: str = "rbf"
    gamma: float = 1.0
    degree: int = 3
    coef0: float = 1.0
    first: int | None = None
    seed: int = 0
    nu: float = 1.5

    @property
    def draws_landmarks(self) -> bool:
        """True if landmarks are drawn from the stream, False if the user has given them."""
        return isinstance(self.landmarks, int | np.integer)

    @property
    def max_landmarks(self) -> int:
        """Largest number of landmarks.

        A mapped row has as many coordinates.
        """
        if isinstance(self.landmarks, int | np.integer):
            return int(self.landmarks)
        return len(self.landmarks)

    def max_mapped_columns(self, n_input_columns: int) -> int:
        """Return the number of coordinates, one for each landmark row.

        A coordinate is 0 until its landmark has been drawn.

        n_input_columns: not used.
        """
        return self.max_landmarks

    def check(self) -> None:
        """Raise InvalidParameter if a parameter is outside its range."""
        # A bool would pass as an int, and a string as a Sequence.
        if isinstance(self.landmarks, bool | str) or not isinstance(self.landmarks, int | np.integer | Sequence):
            raise InvalidParameter(f"landmarks={self.landmarks!r} of nystroem; it must be a number or a list of rows.")
        if not 1 <= self.max_landmarks <= MOST_LANDMARKS:
            raise InvalidParameter(
                f"{self.max_landmarks} landmarks of nystroem; there must be 1 to {MOST_LANDMARKS:,}."
            )
        check_kernel_parameters("nystroem", self.gamma, self.degree, self.coef0)
        check_nu("nystroem", self.nu)
        if self.kernel not in KERNELS:
            raise InvalidParameter(f"kernel={self.kernel!r} of nystroem; it must be one of {', '.join(KERNELS)}.")
        # `first` is the number of first rows from which the landmarks are drawn.
        first = self.first
        if first is not None:
            if not isinstance(first, int) or isinstance(first, bool) or first < self.max_landmarks:
                raise InvalidParameter(
                    f"first={first!r} of nystroem; it must be an integer ≥ {self.max_landmarks}, the landmarks."
                )
            if not self.draws_landmarks:
                raise InvalidParameter(f"first={first!r} of nystroem; landmarks that are given are not drawn.")
        check_seed_or_none(self.seed)
        if not self.draws_landmarks:
            parse_landmark_rows(self.landmarks)

    def bytes(self, n_input_columns: int) -> int:
        """Return the largest memory of the landmarks, in bytes.

        The landmark rows and the Cholesky factor of their kernel matrix take
        8 · landmarks · (features + landmarks) bytes. Rows of more than 4,096 features are assumed
        to be sparse, with 4,096 entries of 12 bytes each.

        n_input_columns: number of features of the rows before mapping.
        """
        if n_input_columns <= _WIDEST_DENSE:
            row_bytes = 8 * n_input_columns
        else:
            row_bytes = 12 * _WIDEST_DENSE
        return self.max_landmarks * (row_bytes + 8 * self.max_landmarks)

    def initial_landmarks(self) -> Landmarks:
        """Return the landmarks before the first row of the stream.

        The result has the landmarks that the spec lists. It is empty if landmarks are drawn from
        the stream.
        """
        # No row of the stream was seen or picked, and the rows have no features yet.
        nothing = Landmarks(0, 0, 0, np.zeros((0, 0)), np.zeros((0, 0)))
        if self.draws_landmarks:
            return nothing
        rows = parse_landmark_rows(self.landmarks)
        return _add_independent_landmarks(self, nothing, rows)

    def add_landmarks_from_batch(self, landmarks: Landmarks, block: Block) -> Landmarks:
        """Return the landmarks with new landmarks from a batch.

        If the spec lists the landmarks, only the number of features is updated. Raises
        WidthMismatch if the landmarks in the spec have another number of features than the batch.
        Raises NotFinite if the kernel of two rows is too large.

        landmarks: landmarks so far.
        block: the batch.
        """
        # `landmarks.indices` is None if the landmarks are dense. Only sparse landmarks may get
        # wider.
        width = max(landmarks.n_features, block.features)
        if not self.draws_landmarks:
            if landmarks.indices is None and width > landmarks.n_features:
                raise width_mismatch(block.features, landmarks.n_features)
            return landmarks._replace(n_features=width)

        # `chosen` are the indices of the drawn rows in the batch. `picked` is the number of rows of
        # the stream that have been drawn so far.
        chosen, picked = self._draw_landmark_rows(landmarks, block)

        # Add the drawn rows in groups, so that the kernel matrix of a group stays small.
        seen = landmarks.seen + block.rows
        for start in range(0, len(chosen), _AT_ONCE):
            group = chosen[start : start + _AT_ONCE]
            landmarks = _add_independent_landmarks(self, landmarks, block.X[group])
        # Dense landmarks get columns of zeros for new features. Sparse ones store no zeros.
        values = landmarks.values
        if landmarks.indices is None:
            values = pad_with_zero_columns(values, width)
        return landmarks._replace(seen=seen, picked=picked, n_features=width, values=values)

    def coordinates(self, landmarks: Landmarks, X: Rows) -> np.ndarray:
        """Return coordinates of rows whose inner products approximate the kernel.

        The coordinates are (rows, largest number of landmarks) float64. Column i belongs to landmark
        i, and depends on landmarks 0 to i.

        landmarks: landmarks so far. Coordinates on further landmarks are 0.
        X: (rows, features), dense or CSR.
        """
        from scipy.linalg import solve_triangular

        # With the Cholesky factor L of the landmarks' kernel matrix (`landmarks.factor`), and a
        # row's kernel values k with the n landmarks, the row's coordinates are L⁻¹ k.
        out = np.zeros((X.shape[0], self.max_landmarks))
        n = len(landmarks.factor)
        if n and X.shape[0]:
            values = self.kernel_values(X, landmarks.rows)
            solved = solve_triangular(landmarks.factor, values.T, lower=True, check_finite=False)
            out[:, :n] = solved.T

            # Set coordinates that are only rounding errors to 0.
            # Without rounding, a landmark's coordinates on later landmarks would be exactly 0.
            lengths = np.linalg.norm(out, axis=1, keepdims=True)
            is_rounding = np.abs(out) <= n * _EPS * lengths
            out[is_rounding] = 0.0
        return out

    def kernel_values(self, A: Rows, B: Rows) -> np.ndarray:
        """Return the kernel values of two sets of rows.

        Entry (i, j) of the float64 array is the kernel of row i of A and row j of B.

        A, B: (rows, features), dense or CSR. If the numbers of features differ, missing features
            count as 0.
        """
        from sklearn.metrics import pairwise as kernels

        width = max(A.shape[1], B.shape[1])
        A = pad_with_zero_columns(A.astype(np.float64, copy=False), width)
        B = pad_with_zero_columns(B.astype(np.float64, copy=False), width)
        if self.kernel == "linear":
            return np.asarray(kernels.linear_kernel(A, B))
        if self.kernel == "polynomial":
            with np.errstate(over="ignore", invalid="ignore"):
                values = kernels.polynomial_kernel(A, B, degree=self.degree, gamma=self.gamma, coef0=self.coef0)
            check_finite(values)
            return np.asarray(values)

        # Subtract a row from all dense rows, because rows far from 0 would lose digits.
        # These kernels (rbf, laplacian, matern) depend only on differences of rows.
        if not sp.issparse(A) and not sp.issparse(B):
            A = A - B[0]
            B = B - B[0]
        if self.kernel == "matern":
            distances = kernels.euclidean_distances(A, B, squared=True)
            return matern(distances, self.gamma, self.nu)
        if self.kernel == "rbf":
            kernel = kernels.rbf_kernel
        else:
            kernel = kernels.laplacian_kernel
        return np.asarray(kernel(A, B, gamma=self.gamma))

    def _draw_landmark_rows(self, landmarks: Landmarks, block: Block) -> tuple[np.ndarray, int]:
        """Draw rows of a batch that are to become landmarks.

        Returns two values:

        - Indices of these rows in the batch.
        - Number of rows drawn so far among the first `self.first` rows of the stream.

        `self.max_landmarks` of these first rows are drawn, with equal probability (Knuth's algorithm
        S). Some of them may not become landmarks, for example rows equal to a landmark. To replace
        them, every row after the first rows is drawn, until there are `self.max_landmarks`.

        landmarks: landmarks so far.
        block: the batch.
        """
        # Once there are all landmarks (rows of `factor`), no further row is drawn.
        picked = landmarks.picked
        if len(landmarks.factor) == self.max_landmarks:
            return np.zeros(0, dtype=np.int64), picked

        # `draws` are random numbers in (0, 1), which depend on the number of the row in the stream.
        draws = draw_uniforms(self.seed, _LANDMARK_DRAW, landmarks.seen, block.rows)[:, 0]
        remaining = max(0, (self.first or self.max_landmarks) - landmarks.seen)
        drawn = _draw_among_remaining(draws, remaining, self.max_landmarks - picked)
        picked += len(drawn)

        # Later rows are all drawn. A row of weight 0 is drawn, but does not become a landmark.
        drawn += range(remaining, block.rows)
        chosen = np.array(drawn, dtype=np.int64)
        if block.weights is not None:
            chosen = chosen[block.weights[chosen] > 0]
        return chosen, picked


def check_kernel_parameters(map_name: str, gamma: float, degree: int, coef0: float) -> None:
    """Raise InvalidParameter if a kernel parameter is invalid.

    map_name: name of the feature map, for the message.
    gamma: parameter γ, which must be above 0.
    degree: degree of the polynomial kernel, which must be from 1 to 20.
    coef0: constant of the polynomial kernel, which must be at least 0.
    """
    if not is_finite_number(gamma) or gamma <= 0:
        raise InvalidParameter(f"gamma={gamma!r} of {map_name}; it must be a finite number > 0.")
    if not is_integer_within(degree, 1, 20):
        raise InvalidParameter(f"degree={degree!r} of {map_name}; it must be an integer from 1 to 20.")
    if not is_finite_number(coef0) or coef0 < 0:
        raise InvalidParameter(f"coef0={coef0!r} of {map_name}; it must be a finite number ≥ 0.")


def parse_landmark_rows(landmarks: Any) -> Rows:
    """Return the landmarks of a spec as rows (landmarks, features).

    The result is an ndarray or CSR. Raises InvalidParameter.

    landmarks: landmarks as an array, sparse matrix, table or lists.
    """
    # A sparse row is a dict of its column indices and values. as_rows takes the other forms, and
    # returns the names of columns, too, which are not needed.
    try:
        if any(isinstance(row, Mapping) for row in landmarks):
            lengths = [len(row["indices"]) for row in landmarks]
            indices = [index for row in landmarks for index in row["indices"]]
            values = [value for row in landmarks for value in row["values"]]
            indptr = np.cumsum([0, *lengths])
            landmarks = sp.csr_matrix((np.asarray(values, dtype=np.float64), indices, indptr))
        rows, _ = as_rows(landmarks)
        return rows
    except (StreamDRError, KeyError, TypeError, ValueError) as e:
        raise InvalidParameter(f"landmarks of nystroem are not rows of numbers ({e}).") from e


def landmarks_to_json(landmarks: Any) -> int | list[Any]:
    """Return landmarks as JSON types, as in a spec.

    landmarks: number of landmarks, or the landmarks as an ndarray, sparse matrix, table or lists.

    Raises InvalidParameter.
    """
    if isinstance(landmarks, int | np.integer):
        return int(landmarks)
    # Landmarks with a dict are sparse rows that already are as in a spec.
    if isinstance(landmarks, Sequence) and any(isinstance(row, Mapping) for row in landmarks):
        return list(landmarks)
    try:
        X, _ = as_rows(landmarks)
    except StreamDRError as e:
        raise InvalidParameter(f"landmarks={landmarks!r} of nystroem; it must be a number or rows ({e}).") from e
    if not sp.issparse(X):
        return list(X.tolist())
    return sparse_rows_to_dicts(X)


def _add_independent_landmarks(nystroem_map: Nystroem, landmarks: Landmarks, candidate_rows: Rows) -> Landmarks:
    """Return the landmarks with rows added.

    A row is skipped if it lies in the span of the earlier landmarks. Rows are added until the
    largest number of landmarks is reached.

    nystroem_map: the map.
    landmarks: landmarks so far.
    candidate_rows: (rows, features), rows to add.
    """
    # `factor` is the Cholesky factor L of the landmarks' kernel matrix. The coordinates of rows are
    # such that their inner products with the rows of L are the kernel values with the landmarks.
    # The remainder is the kernel matrix of the parts of the rows outside the landmarks' span.
    n = len(landmarks.factor)
    room = nystroem_map.max_landmarks - n
    known = nystroem_map.coordinates(landmarks, candidate_rows)[:, :n]
    K = nystroem_map.kernel_values(candidate_rows, candidate_rows)
    remainder = K - known @ known.T

    # Factorise the remainder (Cholesky) one column at a time.
    # A row with a small pivot lies in the span of the landmarks and of the new rows before it.
    columns = np.zeros(remainder.shape)
    new: list[int] = []
    for i in range(len(remainder)):
        j = len(new)
        if j == room:
            break
        row = columns[i, :j]
        pivot = remainder[i, i] - row @ row
        if pivot > _DEPENDENT * K[i, i]:
            unexplained = remainder[i:, i] - columns[i:, :j] @ row
            columns[i:, j] = unexplained / np.sqrt(pivot)
            new.append(i)

    # Extend the Cholesky factor by the new landmarks.
    factor = np.zeros((n + len(new), n + len(new)))
    factor[:n, :n] = landmarks.factor
    factor[n:, :n] = known[new]
    factor[n:, n:] = columns[new, : len(new)]

    # Append the new rows to the landmarks.
    width = max(landmarks.n_features, candidate_rows.shape[1])
    rows = candidate_rows[new].astype(np.float64)
    if n:
        rows = stack_rows(landmarks.rows, rows, width)
    # `fields` are the three arrays in which a Landmarks stores its rows.
    fields = stored_row_fields(pad_with_zero_columns(rows, width))
    return Landmarks(landmarks.seen, landmarks.picked, width, factor, *fields)


def _rows_as_hashable_bytes(X: Rows) -> list[bytes]:
    """Return the bytes of each row, to find equal rows.

    Equal rows have equal bytes, whether they are dense or CSR. Rows of different width are equal if
    the wider one has only zeros in the further columns.
    """
    X = sp.csr_matrix(X, dtype=np.float64)
    X.eliminate_zeros()
    indices = X.indices.astype(np.int64)
    return [indices[start:end].tobytes() + X.data[start:end].tobytes() for start, end in pairwise(X.indptr)]


def _draw_among_remaining(draws: np.ndarray, remaining: int, to_draw: int) -> list[int]:
    """Return indices of rows drawn with equal probability (Knuth's algorithm S)."""
    # draws: random number in (0, 1) of each row of a batch.
    # remaining: number of rows from which to draw. Those after the batch follow in later calls.
    # to_draw: number of rows to draw among the remaining rows.
    drawn: list[int] = []
    for i, draw in enumerate(draws[:remaining]):
        if draw * (remaining - i) < to_draw - len(drawn):
            drawn.append(i)
    return drawn
