"""Growing orthonormal basis on which the scatter of the rows is known exactly.

PCA, SKM, MMC and PLSDA are not linear systems. They need the products of the scatter Cxx
(features, features) with the directions of their solution. These products are stored for a block
Krylov basis V (features, m), which grows by one product with Cxx a step. The small scatter VᵀCxxV
(m, m) is exact, and the method is solved with it as if the columns of V were the features.

Let X be the method's solution, in the span of V. The part of Cxx X that lies outside V,
(I − VVᵀ) Cxx X, shows how far the solution is from exact and in which directions V must grow.
PLSDA with p components is exact after p steps, because its rotations span the Krylov space of Cxy,
the cross sums of rows and targets. The other methods converge [mathematics §4].

The state is V and Cxx V, (features, m) each. When m reaches a maximum, the caller cuts the basis
down to the span of its solution and continues (thick restart).

The basis knows nothing of the methods. So each of the four methods has only one solver.
"""

from typing import NamedTuple

import numpy as np

from stream_dr.checks import check_array_shapes, check_finite_arrays, require_matrix
from stream_dr.solve.singular import thin_svd
from stream_dr.statistics.protocol import nested_state

_NOISE = 1e-13
"""Relative length up to which a new direction is rounding error.

The length is relative to the column from which the direction was computed.
"""


@nested_state
class Subspace(NamedTuple):
    """Orthonormal basis V and its products with the scatter Cxx, between two steps.

    Cxx (features, features) is the scatter of the centred rows.

    Attributes
    ----------
    basis : (features, m) float64
        V, orthonormal.
    images : (features, m) float64
        Products Cxx V.
    directions : (features, r) float64
        Directions by which the basis grows next, orthonormal and orthogonal to V. The next step
        needs the product of Cxx and these directions. If r = 0, Cxx maps the span of V to itself,
        and solutions in this span are exact.
    """

    basis: np.ndarray
    images: np.ndarray
    directions: np.ndarray

    def check(self, features: int | None = None) -> None:
        """Raise DamagedFile unless the arrays have the shapes of one basis.

        features: number of features, or None to take it from the directions.
        """
        features = len(self.directions) if features is None else features
        m, r = require_matrix(self, "basis")[1], require_matrix(self, "directions")[1]
        check_array_shapes(self, np.float64, basis=(features, m), images=(features, m), directions=(features, r))
        check_finite_arrays(self, "basis", "images", "directions")

    @property
    def scatter(self) -> np.ndarray:
        """Scatter VᵀCxxV (m, m) of the rows, projected onto the basis V."""
        small = self.basis.T @ self.images
        return (small + small.T) / 2


def start_basis(columns: np.ndarray) -> Subspace:
    """Return the empty basis whose first directions span `columns` (features, k).

    A direction is a vector by which the next step extends the basis. Directions of the columns
    that are only rounding error are dropped.
    """
    d = len(columns)
    return Subspace(np.zeros((d, 0)), np.zeros((d, 0)), orthonormal(columns, np.zeros((d, 0))))


def extend_basis(state: Subspace, product: np.ndarray) -> Subspace:
    """Return the basis extended by its directions.

    product: Cxx @ state.directions (features, r), where Cxx is the scatter of the centred rows.
        Costs O(features · m · r).
    """
    basis = np.hstack([state.basis, state.directions])
    images = np.hstack([state.images, product])
    return Subspace(basis, images, orthonormal(product, basis))


def restart(state: Subspace, answer: np.ndarray) -> Subspace:
    """Cut the basis down to the span of a solution.

    Let Cxx be the scatter of the centred rows. The basis can grow next by the part of Cxx times
    the solution that lies outside the new basis. An orthonormal basis of this part becomes
    `directions`.

    answer: (m, p), coefficients of the solution in the old basis.
    """
    rotation = np.linalg.qr(answer)[0]
    basis = state.basis @ rotation
    images = state.images @ rotation
    return Subspace(basis, images, orthonormal(images, basis))


def subspace_residual(state: Subspace, answer: np.ndarray) -> float:
    """Return the relative part of Cxx X that lies outside the basis V.

    Cxx (features, features) is the scatter of the centred rows. The solution X (features, p) is an
    orthonormal basis of the span of V @ answer. The relative part is ‖(I − VVᵀ) Cxx X‖ / ‖Cxx X‖.
    Without a solution (p = 0), the result is 1 while the basis grows and 0 once it cannot grow
    further.

    answer: (m, p), coefficients of the solution in the basis.
    """
    if answer.shape[1] == 0:
        # On the first basis, all of MMC's eigenvalues may be negative although a solution exists.
        return 1.0 if state.directions.shape[1] else 0.0
    image = state.images @ np.linalg.qr(answer)[0]
    size = float(np.linalg.norm(image))
    return float(np.linalg.norm(image - state.basis @ (state.basis.T @ image)) / size) if size else 0.0


def orthonormal(columns: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """Return an orthonormal basis of the columns' part outside the span of `basis`.

    columns: (features, k).
    basis: (features, m), orthonormal.

    The result is (features, r), with r at most the rank of the columns.
    """
    size = np.linalg.norm(columns, axis=0)
    rest = columns[:, size > 0] / size[size > 0]

    # One subtraction leaves a rounding error along `basis`, which the second removes [Parlett].
    for _ in range(2):
        rest = rest - basis @ (basis.T @ rest)
        vectors, values, _ = thin_svd(rest)
        rest = vectors[:, values > _NOISE]
    return rest
