"""Subspace: a growing orthonormal basis on which the scatter is known exactly, for methods that are no linear system.

PCA, SKM, MMC and PLSDA need the scatter's action on the directions they end up with. A block Krylov basis V (features, m)
with its images Cxx V, one product a step, holds them: on V the small scatter VᵀCxxV is exact, the method is solved there
as if V's columns were the features, and what its answer X lacks, (I − VVᵀ) Cxx X, says how far it is off and how to grow.
PLSDA with p components is complete after p steps, because its rotations span the Krylov space of Cxy; the others converge
[mathematics §4].

What is remembered: V and Cxx V, (features, m) each, m ≤ `most` columns; then the basis is cut down to its answer and goes
on (thick restart).

Why this way: one growing basis serves four methods without knowing any of them, and each keeps its one solver.
"""

from typing import NamedTuple

import numpy as np

from stream_dr.checks import finite, matrix, shaped
from stream_dr.solve.singular import singular
from stream_dr.statistics.protocol import nested_state

_NOISE = 1e-13
"""New directions shorter than this part of the product they came from are rounding."""


@nested_state
class Subspace(NamedTuple):
    """A basis between two steps.

    basis, images: (features, m) V and Cxx V. directions: (features, r) orthonormal and orthogonal to V: what the next step
    needs the product of; r = 0: V is closed under Cxx and its answers are exact.
    """

    basis: np.ndarray
    images: np.ndarray
    directions: np.ndarray

    def check(self, features: int | None = None) -> None:
        """Raise DamagedFile unless it is a basis of so many features; None: of as many as its directions."""
        features = len(self.directions) if features is None else features
        m, r = matrix(self, "basis")[1], matrix(self, "directions")[1]
        shaped(self, np.float64, basis=(features, m), images=(features, m), directions=(features, r))
        finite(self, "basis", "images", "directions")

    @property
    def scatter(self) -> np.ndarray:
        """VᵀCxxV (m, m)."""
        small = self.basis.T @ self.images
        return (small + small.T) / 2


def start(columns: np.ndarray) -> Subspace:
    """The empty basis whose first directions span `columns` (features, k), those that are rounding left out."""
    d = len(columns)
    return Subspace(np.zeros((d, 0)), np.zeros((d, 0)), orthonormal(columns, np.zeros((d, 0))))


def advance(state: Subspace, product: np.ndarray) -> Subspace:
    """The basis with its directions taken in, given product = Cxx @ directions. O(features · m · r)."""
    basis = np.hstack([state.basis, state.directions])
    images = np.hstack([state.images, product])
    return Subspace(basis, images, orthonormal(product, basis))


def restart(state: Subspace, answer: np.ndarray) -> Subspace:
    """The basis cut down to the span of V @ answer, answer (m, p); the next directions are what that answer lacks."""
    turn = np.linalg.qr(answer)[0]
    basis, images = state.basis @ turn, state.images @ turn
    return Subspace(basis, images, orthonormal(images, basis))


def residual(state: Subspace, answer: np.ndarray) -> float:
    """‖(I − VVᵀ) Cxx X‖ / ‖Cxx X‖ for X = V @ orthonormalised answer (m, p).

    Where there is no answer it is 1 while the basis grows, for there may be one in what it lacks (MMC's eigenvalues may all
    be negative on the first basis), and 0 once the basis is closed.
    """
    if answer.shape[1] == 0:
        return 1.0 if state.directions.shape[1] else 0.0
    image = state.images @ np.linalg.qr(answer)[0]
    size = float(np.linalg.norm(image))
    return float(np.linalg.norm(image - state.basis @ (state.basis.T @ image)) / size) if size else 0.0


def orthonormal(columns: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """Orthonormal (features, r) with the span of columns outside that of the orthonormal basis; r ≤ its rank."""
    size = np.linalg.norm(columns, axis=0)
    rest = columns[:, size > 0] / size[size > 0]
    for _ in range(2):  # twice is enough [Parlett]
        rest = rest - basis @ (basis.T @ rest)
        left, values, _ = singular(rest)
        rest = left[:, values > _NOISE]
    return rest
