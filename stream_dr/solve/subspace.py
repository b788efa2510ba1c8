"""Growing orthonormal basis on which the scatter of the rows is known exactly.

PCA, SKM, MMC and PLSDA can be solved by passes over the rows without forming the scatter Cxx
(features, features) of the centred rows. The state is an orthonormal basis V (features, m), called
a block Krylov basis, and the product Cxx V. In each step, the caller computes the product of Cxx
and some new directions, and the directions are added to V.

The small scatter VᵀCxxV (m, m) is exact. Each method is solved with the small scatter, as if the
columns of V were the features. So the method needs no second solver.

Let X (features, p) be the method's solution, whose columns lie in the span of V. The part of Cxx X
outside this span shows how far the solution is from exact, and in which directions V must grow.
PLSDA with p components is exact after p steps. The other methods converge [mathematics §4].

When m reaches a maximum, the caller cuts the basis down to the span of the solution and continues
(thick restart).
"""

from typing import NamedTuple

import numpy as np

from stream_dr.checks import check_array_shapes, check_finite_arrays, require_matrix
from stream_dr.solve.singular import thin_svd
from stream_dr.statistics.protocol import nested_state

_NOISE = 1e-13
"""Length up to which a new direction is rounding error.

The direction is computed from columns that are scaled to length 1 first.
"""


@nested_state
class Subspace(NamedTuple):
    """Orthonormal basis V, its product with the scatter Cxx, and directions to add next.

    Cxx (features, features) is the scatter of the centred rows.

    Attributes
    ----------
    basis : (features, m) float64
        Basis V, with orthonormal columns.
    images : (features, m) float64
        Product Cxx V.
    directions : (features, r) float64
        Orthonormal vectors, orthogonal to V, which `extend_basis` adds to the basis. The caller
        passes the product of Cxx and these vectors to `extend_basis`. If r = 0, the basis cannot
        grow, and solutions in the span of V are exact.
    """

    basis: np.ndarray
    images: np.ndarray
    directions: np.ndarray

    def check(self, features: int | None = None) -> None:
        """Raise DamagedFile unless the arrays have the shapes of one basis.

        features: number of features, or None for the number of rows of `directions`.
        """
        features = len(self.directions) if features is None else features
        m, r = require_matrix(self, "basis")[1], require_matrix(self, "directions")[1]
        check_array_shapes(self, np.float64, basis=(features, m), images=(features, m), directions=(features, r))
        check_finite_arrays(self, "basis", "images", "directions")

    @property
    def scatter(self) -> np.ndarray:
        """Scatter (m, m) of the rows after projection onto the basis."""
        small = self.basis.T @ self.images
        return (small + small.T) / 2


def start_basis(columns: np.ndarray) -> Subspace:
    """Return a basis without vectors, whose `directions` span the given columns.

    columns: (features, k). Directions in which the columns have only rounding error are dropped.
    """
    d = len(columns)
    return Subspace(np.zeros((d, 0)), np.zeros((d, 0)), orthonormal(columns, np.zeros((d, 0))))


def extend_basis(state: Subspace, product: np.ndarray) -> Subspace:
    """Return the basis extended by the r vectors `state.directions`.

    product: (features, r), the product of the scatter of the centred rows and `state.directions`.

    Costs O(features · m · r) for a basis of m vectors.
    """
    basis = np.hstack([state.basis, state.directions])
    images = np.hstack([state.images, product])
    return Subspace(basis, images, orthonormal(product, basis))


def restart(state: Subspace, answer: np.ndarray) -> Subspace:
    """Return a smaller basis, which spans only a solution.

    The `directions` of the result span the part of Cxx X that lies outside the new basis. X
    (features, p) is the solution, and Cxx (features, features) the scatter of the centred rows.

    answer: (m, p), the solution as coefficients of the m vectors of the old basis.
    """
    rotation = np.linalg.qr(answer)[0]
    basis = state.basis @ rotation
    images = state.images @ rotation
    return Subspace(basis, images, orthonormal(images, basis))


def subspace_residual(state: Subspace, answer: np.ndarray) -> float:
    """Return the relative residual of a solution in the basis.

    The residual is ‖(I − VVᵀ) Cxx X‖ / ‖Cxx X‖, the part of Cxx X outside the span of the basis.
    V (features, m) is the basis, Cxx (features, features) is the scatter of the centred rows, and
    X (features, p) is the solution, made orthonormal. If p = 0, the result is 1 while the basis
    can grow, and then 0.

    answer: (m, p), the solution as coefficients of the m vectors of the basis.
    """
    if answer.shape[1] == 0:
        # MMC may have no positive eigenvalue on a small basis and one on a larger basis.
        return 1.0 if state.directions.shape[1] else 0.0
    image = state.images @ np.linalg.qr(answer)[0]
    size = float(np.linalg.norm(image))
    return float(np.linalg.norm(image - state.basis @ (state.basis.T @ image)) / size) if size else 0.0


def orthonormal(columns: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """Return orthonormal vectors that together with `basis` span `columns`.

    The vectors (features, r) are orthogonal to `basis`. r is at most the rank of the columns.

    columns: (features, k).
    basis: (features, m), orthonormal.
    """
    size = np.linalg.norm(columns, axis=0)
    rest = columns[:, size > 0] / size[size > 0]

    # Subtract twice, because the first time leaves rounding errors along `basis` [Parlett].
    for _ in range(2):
        rest = rest - basis @ (basis.T @ rest)
        vectors, values, _ = thin_svd(rest)
        rest = vectors[:, values > _NOISE]
    return rest
