"""Subspace: a growing orthonormal basis on which the scatter is known exactly.

PCA, SKM, MMC and PLSDA are no linear systems. They need the action of the scatter Cxx on the
directions they end up with. A block Krylov basis V (features, m) with its images Cxx V, one
product a step, holds them. On V the small scatter VᵀCxxV is exact, and the method is solved there
as if the columns of V were the features. The part of its answer X that V lacks, (I − VVᵀ) Cxx X,
says how far the answer is off and how to grow V. PLSDA with p components is complete after p
steps, because its rotations span the Krylov space of Cxy, the cross sums of rows and targets. The
other methods converge [mathematics §4].

The state is V and Cxx V, (features, m) each. Once m reaches a maximum, the caller cuts the basis
down to its answer and continues (thick restart).

One growing basis serves four methods without knowing any of them, so each method has only one
solver.
"""

from typing import NamedTuple

import numpy as np

from stream_dr.checks import check_array_shapes, check_finite_arrays, require_matrix
from stream_dr.solve.singular import thin_svd
from stream_dr.statistics.protocol import nested_state

_NOISE = 1e-13
"""Relative length at or below which a new direction is rounding.

Relative to the product that it came from.
"""


@nested_state
class Subspace(NamedTuple):
    """A basis between two steps.

    Attributes
    ----------
    basis : (features, m) float64
        V, orthonormal.
    images : (features, m) float64
        Cxx V.
    directions : (features, r) float64
        Orthonormal and orthogonal to V. The next step needs their product with Cxx. With r = 0, V
        is closed under Cxx and its answers are exact.
    """

    basis: np.ndarray
    images: np.ndarray
    directions: np.ndarray

    def check(self, features: int | None = None) -> None:
        """Raise DamagedFile unless the arrays are a basis of `features` features.

        If None, of as many features as its directions have.
        """
        features = len(self.directions) if features is None else features
        m, r = require_matrix(self, "basis")[1], require_matrix(self, "directions")[1]
        check_array_shapes(self, np.float64, basis=(features, m), images=(features, m), directions=(features, r))
        check_finite_arrays(self, "basis", "images", "directions")

    @property
    def scatter(self) -> np.ndarray:
        """Scatter VᵀCxxV (m, m) on the basis."""
        small = self.basis.T @ self.images
        return (small + small.T) / 2


def start_basis(columns: np.ndarray) -> Subspace:
    """Return the empty basis whose first directions span `columns` (features, k).

    Directions that are rounding are dropped.
    """
    d = len(columns)
    return Subspace(np.zeros((d, 0)), np.zeros((d, 0)), orthonormal(columns, np.zeros((d, 0))))


def extend_basis(state: Subspace, product: np.ndarray) -> Subspace:
    """Return the basis extended by its directions.

    product: Cxx @ directions (features, r). Costs O(features · m · r).
    """
    basis = np.hstack([state.basis, state.directions])
    images = np.hstack([state.images, product])
    return Subspace(basis, images, orthonormal(product, basis))


def restart(state: Subspace, answer: np.ndarray) -> Subspace:
    """Cut the basis down to the span of an answer.

    answer: (m, p), in coordinates of the basis. The next directions are the part of the answer's
    images that the span lacks.
    """
    rotation = np.linalg.qr(answer)[0]
    basis = state.basis @ rotation
    images = state.images @ rotation
    return Subspace(basis, images, orthonormal(images, basis))


def subspace_residual(state: Subspace, answer: np.ndarray) -> float:
    """Return the relative part of Cxx X that the basis lacks.

    That is ‖(I − VVᵀ) Cxx X‖ / ‖Cxx X‖ for an orthonormal X with the span of V @ answer, and
    answer (m, p). Without an answer (p = 0) it is 1 while the basis grows, and 0 once it is
    closed.
    """
    if answer.shape[1] == 0:
        # The basis may lack the answer. MMC's eigenvalues may all be negative on the first one.
        return 1.0 if state.directions.shape[1] else 0.0
    image = state.images @ np.linalg.qr(answer)[0]
    size = float(np.linalg.norm(image))
    return float(np.linalg.norm(image - state.basis @ (state.basis.T @ image)) / size) if size else 0.0


def orthonormal(columns: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """Return an orthonormal basis of the columns' part outside `basis`.

    columns: (features, k). basis: (features, m), orthonormal. The result is (features, r), with r
    at most the rank of the columns.
    """
    size = np.linalg.norm(columns, axis=0)
    rest = columns[:, size > 0] / size[size > 0]

    # Twice is enough [Parlett].
    for _ in range(2):
        rest = rest - basis @ (basis.T @ rest)
        vectors, values, _ = thin_svd(rest)
        rest = vectors[:, values > _NOISE]
    return rest
