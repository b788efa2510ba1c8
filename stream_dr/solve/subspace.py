"""Growing orthonormal basis on which the scatter is exact.

The scatter is that of the rows' coordinates along the basis vectors. PCA, SKM, MMC and PLSDA can
be solved by passes over the rows without forming the scatter Cxx (features, features) of the
centred rows. The state is an orthonormal basis V (features, m), called a block Krylov basis, and
the product Cxx V. In each step, the caller computes the product of Cxx and some new directions.
Then the directions become columns of V.

The small scatter VᵀCxxV (m, m) is exact. The method's usual solver is applied to the small
scatter, as if the columns of V were the features. So no method needs a second solver.

Let X (features, p) be the method's solution, whose columns lie in the span of V. The part of Cxx X
outside this span shows how far the solution is from exact, and in which directions V must grow.
PLSDA with p components is exact after p steps. The other methods converge [mathematics §4].

When m reaches a maximum, the caller replaces the basis by a basis of the solution's span and
continues. This is called thick restarting.
"""

from typing import NamedTuple

import numpy as np

from stream_dr.checks import check_dtype_and_shapes, check_finite_arrays, shape_of_checked_matrix
from stream_dr.solve.singular import thin_svd
from stream_dr.statistics.protocol import register_nested_state

_NOISE = 1e-13
"""Length up to which a new basis vector is rounding error.

The vector is what remains of columns of length 1 after their part along the basis is subtracted.
"""


@register_nested_state
class Subspace(NamedTuple):
    """Growing orthonormal basis, in whose span a method is solved.

    Let V (features, m) be the basis of m vectors, and Cxx (features, features) the scatter of the
    centred rows. In each step, the basis grows by r new vectors, the directions.

    Attributes
    ----------
    basis : (features, m) float64
        V, with orthonormal columns.
    images : (features, m) float64
        Product Cxx V.
    directions : (features, r) float64
        Orthonormal vectors, orthogonal to V, which `extend_subspace` adds to the basis. The caller
        computes the product of Cxx and these vectors for `extend_subspace`. If r = 0, the basis
        cannot grow, and solutions in the span of V are exact.
    """

    basis: np.ndarray
    images: np.ndarray
    directions: np.ndarray

    def check(self, features: int | None = None) -> None:
        """Raise DamagedFile unless the arrays' shapes fit together.

        features: expected number of features. None means the number of rows of `directions`.
        """
        features = len(self.directions) if features is None else features
        m, r = shape_of_checked_matrix(self, "basis")[1], shape_of_checked_matrix(self, "directions")[1]
        check_dtype_and_shapes(self, np.float64, basis=(features, m), images=(features, m), directions=(features, r))
        check_finite_arrays(self, "basis", "images", "directions")

    @property
    def scatter(self) -> np.ndarray:
        """Scatter (m, m) of the rows' coordinates along m basis vectors."""
        small = self.basis.T @ self.images
        return np.asarray((small + small.T) / 2)


def start_subspace(columns: np.ndarray) -> Subspace:
    """Return an empty Subspace that will grow from columns.

    The `directions` of the result, which become the first basis vectors, are orthonormal vectors
    that span `columns`. Vectors that are only rounding error are dropped.

    columns: (features, k), k columns that the basis will span.
    """
    d = len(columns)
    return Subspace(np.zeros((d, 0)), np.zeros((d, 0)), orthonormal_outside_basis(columns, np.zeros((d, 0))))


def extend_subspace(state: Subspace, scatter_times_directions: np.ndarray) -> Subspace:
    """Add the vectors `state.directions` to the basis.

    The result also has the vectors to add in the next step. They span the part of
    `scatter_times_directions` that lies outside the new basis.

    scatter_times_directions: (features, r), the product of the scatter (features, features) of the
        centred rows and the r vectors `state.directions`.

    Costs O(features · m · r) for a basis of m vectors.
    """
    basis = np.hstack([state.basis, state.directions])
    images = np.hstack([state.images, scatter_times_directions])
    return Subspace(basis, images, orthonormal_outside_basis(scatter_times_directions, basis))


def restart_from_solution(state: Subspace, solution_coefficients: np.ndarray) -> Subspace:
    """Replace the basis by a basis of the solution's span.

    The solution X (features, p) lies in the span of the old basis. The `directions` of the result
    are the vectors by which the new basis grows in the next step. They span the part of Cxx X that
    lies outside the new basis, where Cxx (features, features) is the scatter of the centred rows.

    solution_coefficients: (m, p). Column j has the coefficients of column j of X in the m vectors
        of the old basis.
    """
    rotation = np.linalg.qr(solution_coefficients)[0]
    basis = state.basis @ rotation
    images = state.images @ rotation
    return Subspace(basis, images, orthonormal_outside_basis(images, basis))


def relative_subspace_residual(state: Subspace, solution_coefficients: np.ndarray) -> float:
    """Return the relative residual of a solution in the basis.

    Let V (features, m) be the orthonormal basis `state.basis`, X (features, p) orthonormal vectors
    that span the solution, and Cxx (features, features) the scatter of the centred rows. The part
    of Cxx X outside the span of V is R = Cxx X − VVᵀ Cxx X. The result is ‖R‖ / ‖Cxx X‖. It is 0
    if the solution is exact. If p = 0, the result is 1 if the basis can still grow, else 0.

    solution_coefficients: (m, p). Column j has the coefficients of solution column j in the m
        vectors of V.
    """
    if solution_coefficients.shape[1] == 0:
        # The solution has no columns yet, but may get some when the basis grows.
        # For example, MMC may have a positive eigenvalue only on a larger basis.
        return 1.0 if state.directions.shape[1] else 0.0
    image = state.images @ np.linalg.qr(solution_coefficients)[0]
    size = float(np.linalg.norm(image))
    return float(np.linalg.norm(image - state.basis @ (state.basis.T @ image)) / size) if size else 0.0


def orthonormal_outside_basis(columns: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """Return orthonormal vectors that together with `basis` span `columns`.

    The vectors (features, r) are also orthogonal to `basis`. Vectors that are only rounding error
    are dropped, so r is at most the rank of the columns.

    columns: (features, k), k columns.
    basis: (features, m), m orthonormal vectors.
    """
    size = np.linalg.norm(columns, axis=0)
    rest: np.ndarray = columns[:, size > 0] / size[size > 0]

    # Subtract the part along `basis` twice.
    # After the first subtraction, rounding errors along `basis` remain [Parlett].
    for _ in range(2):
        rest = rest - basis @ (basis.T @ rest)
        vectors, values, _ = thin_svd(rest)
        rest = vectors[:, values > _NOISE]
    return rest
