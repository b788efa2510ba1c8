"""CCA: canonical correlation analysis by the two-stage method."""

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

    Canonical correlation analysis, the side of the rows, in one pass. `predict` is regression on
    the components.

    >>> from stream_dr import CCA
    >>> cca = CCA().fit([[0.0, 1.0], [1.0, 1.0], [5.0, 0.0], [4.0, 2.0]], [0.1, 0.9, 5.2, 3.9])
    >>> cca.rank_
    1

    Targets are one or several labels a row (learned by their indicators), or numbers. There are at
    most rank(Cyy) components. Merges and unlearns.

    Attributes
    ----------
    y_rotations_ : ndarray (targets, components), float64
        Canonical directions of the targets, labels by their indicators (`classes_`).

    Notes
    -----
    Solves `(Cxx + γI)⁻¹ XH Hᵀ Xᵀ w = λ w` with XH = Cxy (Cyy)^(−1/2) [2S §2; mathematics §3]. Cxx
    is the scatter of the rows, Cyy that of the centred targets, Cxy their cross-scatter.
    Eigenvalues of Cyy (scaled to unit diagonal) at most 1e-10 of the largest are left out. At γ =
    0 the eigenvalues are squared canonical correlations, each in [0, 1].

    On one label a row the indicator's Cyy is singular and CCA is LDA. With scaling="source" this
    holds to the length. With "unit" the projected rows have variance 1, LDA's have variance 1
    within their classes.

    `predict`, `coef_` and the loadings are those of regression on the components. scikit-learn's
    CCA takes loadings of the targets on their own components, so what it predicts is of another
    size. Left out: a ridge on Cyy.

    State: O(d·(k + 2) + k²) numbers for d features and k labels or columns, and d² more with exact
    scatter. Learning a row costs O(its entries × its labels), and O(d²) with exact scatter.
    Solving costs O(d³ + d k² + k³), or O(d k² + k³) from the diagonal, which `refine` makes exact.
    """

    limit: ClassVar[str] = "there are at most as many as targets that do not follow from each other"
    target_kinds: ClassVar[tuple[str, ...]] = ("class", "multilabel", "continuous")

    def transform(self, X: RowsLike, y: TargetsLike = None) -> np.ndarray:
        """Project rows X (rows, features) to (rows, components) float64.

        y is ignored. Raises NotFitted before any row.
        """
        return super().transform(X)

    def right_hand_side(self, moments: Moments, state: MomentState) -> tuple[np.ndarray, float]:
        """Return XH = Cxy (Cyy)^(−1/2), and its size for the rounding test."""
        root = self._inverse_root(moments)
        return moments.cross @ root, root.shape[1] ** 0.5

    def scatter_along(self, moments: Moments, loadings: np.ndarray, eigenvalues: np.ndarray) -> np.ndarray:
        """Return wᵀ(aCxx + ρI)w (p,)."""
        return two_stage_sizes(moments.cross @ self._inverse_root(moments), loadings, eigenvalues)

    @property
    def y_rotations_(self) -> np.ndarray:
        """Canonical directions (targets, components) float64 of the targets.

        Labels stand for their indicators (`classes_`). At γ = 0, centred targets projected on them
        correlate with the components as √eigenvalues_. The projections have variance 1, or with
        scaling="source" their summed squares are 1.
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
        """Return B (k, r) with B Bᵀ = Cyy⁺.

        The symmetric root is B times a rotation, which changes nothing in W.
        """
        diagonal = np.diagonal(m.target_scatter)
        # The indicator's scatter is a difference of counts: a label that all rows have leaves rounding of n_j.
        if m.labelled:
            varying = diagonal > 8 * EPS * m.weight * m.target_mean**2
        else:
            varying = Rounding(np.sqrt(m.weight) * np.abs(m.target_mean)).varying(diagonal)

        # Scaled to unit diagonal, so that the cut does not depend on the units of the targets.
        scale = 1.0 / np.sqrt(diagonal[varying])
        values, vectors = semidefinite_eigenpairs(m.target_scatter[np.ix_(varying, varying)] * scale[:, None] * scale)
        keep = values > 1e-10 * values.max(initial=0.0)
        root = np.zeros((len(diagonal), int(keep.sum())))
        root[varying] = scale[:, None] * vectors[:, keep] / np.sqrt(values[keep])
        return root
