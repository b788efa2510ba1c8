"""CCA (canonical correlation analysis) by the two-stage method."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stream_dr.estimators.fitting.inputs import RowsLike, TargetsLike
from stream_dr.estimators.fitting.moments import Moments
from stream_dr.estimators.fitting.target_regression import TargetRegression, two_stage_sizes
from stream_dr.estimators.fitting.two_stage_method import TwoStage
from stream_dr.solve.rounding import Rounding
from stream_dr.solve.spectral import EPS, semidefinite_eigenpairs
from stream_dr.statistics.moments.accumulator import MomentState


@dataclass(eq=False, repr=False)
class CCA(TargetRegression, TwoStage):
    """Find the directions most correlated with some combination of the targets.

    Canonical correlation analysis in one pass. The components are the canonical directions of the
    rows. `predict` regresses the targets on the components.

    >>> from stream_dr import CCA
    >>> cca = CCA().fit([[0.0, 1.0], [1.0, 1.0], [5.0, 0.0], [4.0, 2.0]], [0.1, 0.9, 5.2, 3.9])
    >>> cca.rank_
    1

    Targets are one or several labels a row, or numbers. Labels are learned as indicators (columns
    of 0 and 1). The number of components is at most the rank of the targets' scatter. Merges and
    unlearns.

    Attributes
    ----------
    y_rotations_ : ndarray (targets, components), float64
        Canonical directions of the targets. For labels, one row for each label in `classes_`.

    Notes
    -----
    Solves `(Cxx + γI)⁻¹ XH Hᵀ Xᵀ w = λ w` with XH = Cxy (Cyy)^(−1/2) [2S §2; mathematics §3].

    - X are the centred rows, and γ is the ridge `gamma`.
    - Cxx is the scatter of the centred rows.
    - Cyy is the scatter of the centred targets. The paper prints YYᵀ of targets that are not
      centred, which gives other directions if there are fewer components than targets. Scaled
      to unit diagonal, eigenvalues of Cyy at most 1e-10 of the largest are left out.
    - Cxy is the cross-scatter of rows and targets.

    At γ = 0 the eigenvalues are squared canonical correlations, each in [0, 1].

    With one label a row, Cyy of the indicators is singular, and CCA finds the directions of LDA.
    With scaling="source" the directions also have the same length as LDA's. With "unit" the
    lengths differ: CCA's projected rows have variance 1, and LDA's have variance 1 within their
    classes.

    `predict`, `coef_` and the loadings are those of a regression on the components. scikit-learn's
    CCA regresses the targets on their own components, so its predictions differ in size. Left out:
    a ridge on Cyy.

    State: O(d·(k + 2) + k²) numbers for d features and k labels or columns, and d² more with exact
    scatter. Learning a row costs O(its entries × its labels), and O(d²) with exact scatter.
    Solving costs O(d³ + d k² + k³), or O(d k² + k³) from the diagonal of Cxx. `refine` makes the
    solution from the diagonal exact.
    """

    limit: ClassVar[str] = "there are at most as many as targets that do not follow from each other"
    target_kinds: ClassVar[tuple[str, ...]] = ("class", "multilabel", "continuous")

    def transform(self, X: RowsLike, y: TargetsLike = None) -> np.ndarray:
        """Project rows X (rows, features) to components (rows, components) float64.

        y is ignored. Raises NotFitted before any row is learned.
        """
        return super().transform(X)

    def right_hand_side(self, moments: Moments, state: MomentState) -> tuple[np.ndarray, float]:
        """Return XH (features, r) = Cxy (Cyy)^(−1/2), and the size of the factor H.

        Cxy is the cross-scatter of rows and targets, Cyy the scatter of the targets.

        X are the centred rows, and H is the factor of the targets. The size √(tr HᵀH) decides which
        part of XH is only rounding error.
        """
        root = self._inverse_root(moments)
        return moments.cross @ root, root.shape[1] ** 0.5

    def scatter_along(self, moments: Moments, loadings: np.ndarray, eigenvalues: np.ndarray) -> np.ndarray:
        """Return wᵀ(aCxx + ρI)w (p,) for each component w.

        Cxx is the scatter of the rows. a and ρ are the factors of the ridge.
        """
        return two_stage_sizes(moments.cross @ self._inverse_root(moments), loadings, eigenvalues)

    @property
    def y_rotations_(self) -> np.ndarray:
        """Canonical directions (targets, components) float64 of the targets.

        For labels, the targets are their indicators, in the order of `classes_`. At γ = 0, the
        centred targets projected on these directions correlate with the components as
        √eigenvalues_. The projections have variance 1. With scaling="source", their squares sum
        to 1 instead.
        """
        projection = self.linear_projection()
        m = self.moments(self.state_)
        root = self._inverse_root(m)
        turned = root.T @ (m.cross.T @ (projection.loadings / m.scale[:, None]))
        lengths = np.linalg.norm(turned, axis=0)
        rotations = root @ (turned / np.where(lengths > 0, lengths, 1.0))
        rotations = rotations * np.sqrt(m.weight) if self.scaling == "unit" else rotations
        return rotations[sorted(range(len(m.labels)), key=lambda at: m.labels[at])] if m.labelled else rotations

    @staticmethod
    def _inverse_root(m: Moments) -> np.ndarray:
        """Return B (k, r) with B Bᵀ = Cyy⁺, the pseudo-inverse of the targets' scatter Cyy.

        The symmetric root of Cyy⁺ is B times a rotation. The rotation does not change the
        components.
        """
        diagonal = np.diagonal(m.target_scatter)
        # The scatter of a label that all rows have is only rounding error, so it is left out.
        if m.labelled:
            varying = diagonal > 8 * EPS * m.weight * m.target_mean**2
        else:
            varying = Rounding(np.sqrt(m.weight) * np.abs(m.target_mean)).varying(diagonal)

        # With a unit diagonal, the cut of the eigenvalues does not depend on the targets' units.
        scale = 1.0 / np.sqrt(diagonal[varying])
        values, vectors = semidefinite_eigenpairs(m.target_scatter[np.ix_(varying, varying)] * scale[:, None] * scale)
        keep = values > 1e-10 * values.max(initial=0.0)
        root = np.zeros((len(diagonal), int(keep.sum())))
        root[varying] = scale[:, None] * vectors[:, keep] / np.sqrt(values[keep])
        return root
