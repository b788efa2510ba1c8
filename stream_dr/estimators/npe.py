"""NPE (neighbourhood preserving embedding), from a sample of the rows."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from stream_dr.estimators.fitting.parameters import check_choice, check_number_in_range
from stream_dr.estimators.fitting.reservoir_method import (
    ClassTargetsIfAny,
    ReservoirMethod,
    check_weighted_neighbours,
)
from stream_dr.projection import Linear
from stream_dr.solve.discriminant import locality_projection, projection_without_components
from stream_dr.solve.embedding import barycentric_weight_matrix, lle_alignment_matrix
from stream_dr.statistics.reservoir import Reservoir


@dataclass(eq=False, repr=False)
class NPE(ReservoirMethod):
    """Find linear directions that preserve weighted means of neighbours.

    Neighbourhood preserving embedding, the linear form of LLE (locally linear embedding). The
    projection is computed from a uniform sample of the rows.

    >>> from sklearn.datasets import load_iris
    >>> from stream_dr import NPE
    >>> NPE().fit(load_iris().data).components_.shape
    (2, 4)

    The method is unsupervised unless `label_aware` is true. States can be merged. The merged
    sample is drawn from the two samples in proportion to the lengths of their streams. Rows cannot
    be unlearned.

    Parameters
    ----------
    n_neighbors : int ≥ 1, default 10
        Number of neighbours k of a row, without the row itself. At most 500. A larger number is
        allowed only if `reservoir`, the maximum number of sampled rows, is at most 500.
    label_aware : bool, default False
        Take neighbours only from a row's own class. Needs y.
    reg : float ≥ 0, default 0.001
        Regularisation of the weights. `reg` times the trace of a row's local Gram matrix is added
        to the diagonal of this matrix.
    gamma : float ≥ 0, default 0.0
        Ridge that is added to the matrices on both sides of the eigenproblem (see Notes). With
        gamma=0 there is no ridge, except if the sample has at most as many rows as features. In
        this case the ridge is 1e-3 of the mean eigenvalue of Xᵀ X.
    scaling : {"unit", "source"}, default "unit"
        With "unit", the sampled rows have variance 1 along every component. With "source",
        wᵀ Xᵀ X w = 1 (see Notes), as in the paper.

    Attributes
    ----------
    eigenvalues_ : ndarray (components,), float64
        Eigenvalues λ, ascending.

    Notes
    -----
    Solves Xᵀ (I − W)ᵀ(I − W) X w = λ Xᵀ X w for the smallest λ [mathematics §7]. X (reservoir,
    features) are the centred sampled rows. W (reservoir, reservoir) are barycentric weights, with
    which the weighted mean of a row's neighbours is as close to the row as possible [GLPLS eq.
    2.31, 2.34]. Directions along which the sampled rows do not vary are left out.

    Learning a row costs O(1), or O(entries) if the row is sampled. Solving costs O(reservoir ·
    features · min(reservoir, features)), and transforming a row costs O(entries · components). The
    state of dense rows takes 8 · reservoir · features bytes.
    """

    target_kinds = ClassTargetsIfAny("label_aware")  # type: ignore[assignment]
    fixed: ClassVar[tuple[str, ...]] = (*ReservoirMethod.fixed, "label_aware")

    _: KW_ONLY
    label_aware: bool = False
    reg: float = 1e-3
    gamma: float = 0.0

    def check_parameters(self) -> None:
        """Raise InvalidParameter when a parameter is outside its range."""
        super().check_parameters()
        check_weighted_neighbours(self.n_neighbors, self.reservoir)
        check_choice("label_aware", self.label_aware, (False, True))
        check_number_in_range("reg", self.reg, 0.0)
        check_number_in_range("gamma", self.gamma, 0.0)

    def solve_inner(self, state: Reservoir) -> Linear:
        """Return the linear projection that preserves the sample's neighbourhoods.

        Each projected row is close to the same weighted mean of its neighbours as before.
        """
        # With fewer than two rows there are no neighbours. The r sampled rows are `state.kept`.
        r = len(state.numbers)
        if r < 2:
            mean = np.zeros(state.n_features)
            if r:
                mean = np.asarray(state.kept.mean(axis=0)).ravel()
            return projection_without_components(mean)

        # If classes are not used, all rows count as one class.
        if self.label_aware:
            codes = state.codes
        else:
            codes = np.zeros(r, dtype=np.int32)
        # Minimise wᵀ(Xᵀ A X + ρI)w / wᵀ(Xᵀ B X + ρI)w over directions w. X (r, features) are the
        # centred sampled rows, A = (I − W)ᵀ(I − W), B = I, and ρ is the ridge `gamma`. Each row of
        # W X (r, features) is the weighted mean of a row's neighbours that is closest to the row.
        W = barycentric_weight_matrix(state.kept, self.n_neighbors, self.reg, codes)
        A = lle_alignment_matrix(W)
        B = sp.eye_array(r, format="csr")
        unit = self.scaling == "unit"
        return locality_projection(state.kept, A, B, self.n_components, self.gamma, unit_variance=unit)
