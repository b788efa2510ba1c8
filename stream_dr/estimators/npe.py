"""NPE (neighbourhood preserving embedding), computed from a sample of the rows."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from stream_dr.estimators.fitting.parameter_checks import check_choice, check_number
from stream_dr.estimators.fitting.reservoir_method import ByClass, ReservoirMethod, check_weighted
from stream_dr.projection import Linear
from stream_dr.solve.barycentre import lle_alignment, weight_matrix
from stream_dr.solve.locality import locality_projection
from stream_dr.statistics.reservoir import Reservoir


@dataclass(eq=False, repr=False)
class NPE(ReservoirMethod):
    """Find linear directions along which rows stay means of their neighbours.

    Neighbourhood preserving embedding, the linear form of LLE (locally linear embedding). The
    projection is computed from a uniform sample of the rows.

    >>> from sklearn.datasets import load_iris
    >>> from stream_dr import NPE
    >>> NPE().fit(load_iris().data).components_.shape
    (2, 4)

    Unsupervised, unless `label_aware`. Merges: the merged sample is drawn from the two samples in
    proportion to their streams (a hypergeometric draw). Does not unlearn.

    Parameters
    ----------
    n_neighbors : int ≥ 1, default 10
        Number of neighbours k of a row, without the row itself. At most 500, unless
        `reservoir` is at most 500.
    label_aware : bool, default False
        Take neighbours only from a row's own class. Needs y.
    reg : float ≥ 0, default 0.001
        Regularisation of the weights. This share of the trace of a row's local Gram matrix is
        added to the diagonal of that matrix.
    gamma : float ≥ 0, default 0.0
        Ridge that is added to both sides' matrices (see Notes). With 0 there is no ridge, unless
        the sample has at most as many rows as features. Then the ridge is 1e-3 of the mean
        eigenvalue of Xᵀ X.
    scaling : {"unit", "source"}, default "unit"
        With "unit", the sampled rows have variance 1 along every component. With "source", wᵀ Xᵀ X
        w = 1, as in the source.

    Attributes
    ----------
    eigenvalues_ : ndarray (components,), float64
        Eigenvalues λ, ascending.

    Notes
    -----
    Solves Xᵀ (I − W)ᵀ(I − W) X w = λ Xᵀ X w for the smallest λ [mathematics §7; GLPLS eq. 2.31,
    2.34 for W]. X are the centred sampled rows. W are barycentric weights: each row is closest to
    the mean of its neighbours weighted by W. Components in which the sampled rows do not vary are
    left out.

    Learning a row costs O(1), and O(entries) for the few rows that are sampled. Solving costs
    O(reservoir · features · min(reservoir, features)), transforming a row O(entries · components).
    State: 8 · reservoir · features bytes, dense.
    """

    target_kinds = ByClass()  # type: ignore[assignment]
    fixed: ClassVar[tuple[str, ...]] = (*ReservoirMethod.fixed, "label_aware")

    _: KW_ONLY
    label_aware: bool = False
    reg: float = 1e-3
    gamma: float = 0.0

    def check_parameters(self) -> None:
        """Raise InvalidParameter when a parameter is outside its range."""
        super().check_parameters()
        check_weighted(self.n_neighbors, self.reservoir)
        check_choice("label_aware", self.label_aware, (False, True))
        check_number("reg", self.reg, 0.0)
        check_number("gamma", self.gamma, 0.0)

    def solve_sample(self, state: Reservoir) -> Linear:
        """Return the directions of smallest eigenvalue λ, from the sampled rows in `state`."""
        r, d = len(state.numbers), state.n_features
        if r < 2:
            mean = np.asarray(state.kept.mean(axis=0)).ravel() if r else np.zeros(d)
            return Linear(mean, np.zeros((d, 0)), np.zeros(0), "exact")
        codes = state.codes if self.label_aware else np.zeros(r, dtype=np.int32)
        W = weight_matrix(state.kept, self.n_neighbors, self.reg, codes)
        return locality_projection(
            state.kept,
            lle_alignment(W),
            sp.eye_array(r, format="csr"),
            self.n_components,
            self.gamma,
            self.scaling == "unit",
        )
