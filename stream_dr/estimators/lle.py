"""LLE: locally linear embedding of a sample."""

from dataclasses import KW_ONLY, dataclass

from stream_dr.estimators.fitting.parameter_checks import check_number
from stream_dr.estimators.fitting.reservoir_method import Embedding, check_weighted
from stream_dr.solve.barycentre import Barycentre, locally_linear
from stream_dr.statistics.reservoir import Reservoir


@dataclass(eq=False, repr=False)
class LLE(Embedding):
    """Place rows so that each stays the same mean of its neighbours.

    Locally linear embedding of a uniform sample of the rows. Other rows are placed as means of
    their nearest sampled ones. Unsupervised: y is ignored.

    >>> import numpy as np
    >>> from stream_dr import LLE
    >>> LLE(n_components=1, n_neighbors=3).fit_transform(np.arange(12.0)[:, None]).shape
    (12, 1)

    Merges, by a hypergeometric draw. Does not unlearn. Use `NPE` for a linear map, or for
    neighbours within classes.

    Parameters
    ----------
    n_neighbors : int ≥ 1, default 10
        Number of neighbours k besides the row itself, at most 500 (or as many as `reservoir`).
    reg : float ≥ 0, default 0.001
        Share of each local Gram matrix' trace that is added to its diagonal.
    scaling : {"unit", "source"}, default "unit"
        With "unit", the sampled rows have variance 1 along every component. With "source", places
        have unit length, as scikit-learn's.

    Attributes
    ----------
    eigenvalues_ : ndarray (components,), float64
        Eigenvalues of (I − W)ᵀ(I − W), ascending.

    Notes
    -----
    Every row is written as a barycentric mean of its neighbours with weights W, and places are
    found for which the same means hold [GLPLS eq. 2.31-2.34]. On the sampled rows this is
    scikit-learn's LocallyLinearEmbedding in every choice (k others, the ridge on the local Gram
    matrix, unit-length places), so that one can be checked against the other.

    Learning a row costs O(1), and O(entries) for the few that are sampled. Solving costs
    O(reservoir³), transforming a row O((reservoir + k²) · features). State: 8 · reservoir ·
    features bytes, dense.

    Left out: label-aware neighbours (a new row has no label), the Hessian and modified variants.
    """

    _: KW_ONLY
    reg: float = 1e-3

    def check_parameters(self) -> None:
        """Raise InvalidParameter when a parameter is outside its range."""
        super().check_parameters()
        check_weighted(self.n_neighbors, self.reservoir)
        check_number("reg", self.reg, 0.0)

    def solve_sample(self, state: Reservoir) -> Barycentre:
        """Return the places of the sampled rows, and the rule for other rows."""
        return locally_linear(state.kept, self.n_components, self.n_neighbors, self.reg, self.scaling == "unit")
