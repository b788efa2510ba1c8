"""CCA (canonical correlation analysis), from scatters of rows and targets."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stream_dr.estimators.fitting.inputs import RowsLike, TargetsLike
from stream_dr.estimators.fitting.moments import Moments
from stream_dr.estimators.fitting.predictor import TargetRegression, ridged_variance_by_component
from stream_dr.estimators.fitting.two_stage_method import RightHandSide, TwoStage
from stream_dr.solve.spectral import EPS, Rounding, nonzero_semidefinite_eigenpairs
from stream_dr.statistics.moments.state import MomentState


@dataclass(eq=False, repr=False)
class CCA(TargetRegression, TwoStage):
    """Find directions of rows that correlate most with the targets.

    Canonical correlation analysis in one pass. Each component has the largest possible correlation
    with a linear combination of the targets. `predict` regresses the targets on the components.

    >>> from stream_dr import CCA
    >>> cca = CCA().fit([[0.0, 1.0], [1.0, 1.0], [5.0, 0.0], [4.0, 2.0]], [0.1, 0.9, 5.2, 3.9])
    >>> cca.rank_
    1

    Targets are one or several labels a row, or numbers. Labels are learned as indicators (columns
    of 0 and 1). There are at most as many components as the rank of the targets' scatter. States
    can be merged, and rows can be unlearned.

    Attributes
    ----------
    y_rotations_ : ndarray (targets, components), float64
        Canonical directions of the targets. For labels, one row for each label in `classes_`.

    Notes
    -----
    Solves `(Cxx + γI)⁻¹ XH (XH)ᵀ w = λ w` with XH = Cxy (Cyy)^(−1/2) [2S §2; mathematics §3].

    - Cxx (features, features) is the scatter of the centred rows, and γ is the ridge `gamma`.
    - Cyy (targets, targets) is the scatter of the centred targets. It is scaled to unit diagonal,
      and eigenvalues up to 1e-10 of the largest are dropped. The paper [2S] does not centre the
      targets, which gives other directions if there are fewer components than targets.
    - Cxy (features, targets) is the cross-scatter of rows and targets.

    With γ = 0, each eigenvalue λ is a squared canonical correlation, from 0 to 1.

    With one label a row, CCA finds the same directions as LDA. With scaling="source" the
    directions also have the same length. With scaling="unit" the lengths differ, because rows
    projected by CCA have variance 1, and rows projected by LDA have variance 1 within their
    classes.

    `predict` and `coef_` are a regression of the targets on the rows' components. scikit-learn's
    CCA uses the targets' own components instead, so its predictions have another size. No ridge is
    added to Cyy.

    Let d be the number of features and k the number of targets (labels or columns of numbers). The
    state has O(d·(k + 2) + k²) numbers. Learning a row costs O(its entries × its labels). The exact
    scatter (the whole matrix Cxx, not only its diagonal) adds d² numbers to the state and O(d²) to
    learning a row. Solving costs O(d³ + d k² + k³), or O(d k² + k³) if only the diagonal is stored.
    The solution is then approximate, and `refine` makes it exact.
    """

    limit: ClassVar[str] = "there are at most as many as targets that do not follow from each other"
    target_kinds: ClassVar[tuple[str, ...]] = ("class", "multilabel", "continuous")

    def transform(self, X: RowsLike, y: TargetsLike = None) -> np.ndarray:
        """Project rows X (rows, features) to components (rows, components) float64.

        y is ignored. Raises NotFitted if no row was learned so far.
        """
        return super().transform(X)

    def right_hand_side(self, moments: Moments, state: MomentState) -> RightHandSide:
        """Return the right-hand side and the whitened targets' norm.

        The right-hand side is Cxy (Cyy)^(−1/2). Cxy (features, targets) is the cross-scatter of
        rows and targets. Cyy (targets, targets) is the scatter of the targets. The right-hand side
        (features, r) is the product of the centred rows and the whitened targets. The norm of the
        whitened targets is √r. It decides which part of the product is only rounding error.
        """
        root = self._target_whitening_root(moments)
        return RightHandSide(moments.cross @ root, root.shape[1] ** 0.5)

    def loss_factors(self, moments: Moments) -> np.ndarray:
        """Return the matrix F (targets, r) of the loss.

        In cross-validation, the loss is the sum of |Fᵀ e|² over the rows. e (targets,) are a row's
        residuals: the targets minus their predictions. F Fᵀ is a pseudo-inverse of the targets'
        scatter, whose rank is r. So F whitens the targets: the r columns of targets @ F are
        uncorrelated and have equal variance.
        """
        return self._target_whitening_root(moments)

    def component_variances(
        self, moments: Moments, loadings: np.ndarray, eigenvalues: np.ndarray, covariances: np.ndarray
    ) -> np.ndarray:
        """Return the ridged variance wᵀ A w (p,) of each component w.

        CCA solves XH (XH)ᵀ w = λ A w. A (features, features) is the rows' scatter plus the ridge.
        XH is Cxy B, where Cxy (features, targets) is the cross-scatter of rows and targets, and B
        (targets, r) whitens the targets. So wᵀ A w is |(XH)ᵀ w|² / λ, and neither A nor w itself is
        needed.

        moments: centred sums of the rows and targets, from which B is computed.
        loadings: ignored.
        eigenvalues: (p,), the eigenvalues λ.
        covariances: (p, targets), the vectors Cxyᵀ w.
        """
        return ridged_variance_by_component(covariances @ self._target_whitening_root(moments), eigenvalues)

    @property
    def y_rotations_(self) -> np.ndarray:
        """Canonical directions of the targets, float64 (targets, components).

        For a component w (features,), the direction is B u / |u| with u = Bᵀ Cxyᵀ w. The matrix B
        (targets, r) whitens the targets (makes them uncorrelated, with scatter 1). Cxy (features,
        targets) is the cross-scatter of rows and targets.

        If the targets are labels, there is one row for each label, in the order of `classes_`.
        With scaling="unit", targets projected on these directions have variance 1. With
        scaling="source", the squares of the projected targets sum to 1. With gamma=0, the
        correlation of a component with the targets projected on its direction is the square root
        of the component's eigenvalue.
        """
        moments = self.moments(self.state_)
        B = self._target_whitening_root(moments)
        # The features in `moments` were multiplied by `scale`. Divide the components by it.
        w = self.linear_projection().loadings / moments.scale[:, None]
        u = B.T @ (moments.cross.T @ w)

        # A component without correlation has u = 0 and the direction 0.
        lengths = np.linalg.norm(u, axis=0)
        rotations: np.ndarray = B @ (u / np.where(lengths > 0, lengths, 1.0))

        # So far, the squares of the projected targets sum to 1 over the rows. `weight` is the
        # number of rows (each counted by its weight). Multiplied by its root, the variance becomes
        # 1.
        if self.scaling == "unit":
            rotations = rotations * np.sqrt(moments.weight)
        # Sort the labels as in `classes_`.
        if moments.labelled:
            return rotations[moments.label_order]
        return rotations

    @staticmethod
    def _target_whitening_root(moments: Moments) -> np.ndarray:
        """Return the matrix that whitens the targets, from their scatter.

        The result is a matrix B (targets, r) such that B Bᵀ is a pseudo-inverse of the targets'
        scatter. The method's components do not depend on the choice of B.

        moments: moments (sums of the rows), from which the targets' scatter is taken.
        """
        diagonal = np.diagonal(moments.target_scatter)
        varying_columns = _varying_targets(moments)
        # Scale to unit diagonal, so that units do not decide which eigenvalues count as zero.
        scale = 1.0 / np.sqrt(diagonal[varying_columns])
        scatter = moments.target_scatter[np.ix_(varying_columns, varying_columns)]
        values, vectors = nonzero_semidefinite_eigenpairs(scatter * scale[:, None] * scale)
        # Drop directions of nearly no variance. The division would amplify their rounding errors.
        keep = values > 1e-10 * values.max(initial=0.0)
        root = np.zeros((len(diagonal), int(keep.sum())))
        root[varying_columns] = scale[:, None] * vectors[:, keep] / np.sqrt(values[keep])
        return root


def _varying_targets(moments: Moments) -> np.ndarray:
    """Return a mask (targets,) of targets with more scatter than rounding error."""
    scatter = np.diagonal(moments.target_scatter)
    N = moments.weight
    m = moments.target_mean
    # Labels (0 or 1) are squared and then centred, with an error of some EPS N m².
    if moments.labelled:
        return scatter > 8 * EPS * N * m**2
    # Numbers are centred and then squared, so their error is smaller. It follows from √N |m|.
    return Rounding(np.sqrt(N) * np.abs(m)).varying_columns(scatter)
