"""LLE (locally linear embedding) of a sample of the rows."""

from dataclasses import KW_ONLY, dataclass

from stream_dr.estimators.fitting.parameter_checks import check_number
from stream_dr.estimators.fitting.reservoir_method import Embedding, check_weighted
from stream_dr.solve.barycentre import LocallyLinearEmbedding, locally_linear
from stream_dr.statistics.reservoir import Reservoir


@dataclass(eq=False, repr=False)
class LLE(Embedding):
    """Find coordinates in which each row stays the same mean of its neighbours.

    Locally linear embedding of a uniform sample of the rows. The coordinates of rows outside the
    sample are weighted means of the coordinates of their nearest sampled rows. Unsupervised: y is
    ignored.

    >>> import numpy as np
    >>> from stream_dr import LLE
    >>> LLE(n_components=1, n_neighbors=3).fit_transform(np.arange(12.0)[:, None]).shape
    (12, 1)

    Merges: the merged sample is drawn from the two samples in proportion to their streams (a
    hypergeometric draw). Does not unlearn. Use `NPE` for a linear map, or for neighbours within
    classes.

    Parameters
    ----------
    n_neighbors : int ≥ 1, default 10
        Number of neighbours k of a row, without the row itself. At most 500, unless `reservoir` is
        at most 500.
    reg : float ≥ 0, default 0.001
        Regularisation of the weights. This share of the trace of a row's local Gram matrix is
        added to the diagonal of that matrix.
    scaling : {"unit", "source"}, default "unit"
        With "unit", the sampled rows have variance 1 along every component. With "source", each
        component's coordinates have length 1, as in scikit-learn.

    Attributes
    ----------
    eigenvalues_ : ndarray (components,), float64
        Eigenvalues of (I − W)ᵀ(I − W), ascending. W are the weights of the Notes.

    Notes
    -----
    Every sampled row is approximated by a weighted mean of its neighbours, with barycentric
    weights W. The coordinates are chosen so that the same means hold for them [GLPLS eq.
    2.31-2.34]. On the sampled rows every choice is that of scikit-learn's LocallyLinearEmbedding,
    so the results can be compared: k other rows as neighbours, the regularisation of the local
    Gram matrix, and coordinates of length 1.

    Learning a row costs O(1), and O(entries) for the few rows that are sampled. Solving costs
    O(reservoir³), transforming a row O((reservoir + k²) · features). State: 8 · reservoir ·
    features bytes, dense.

    Left out: label-aware neighbours (a new row has no label), and the Hessian and modified
    variants.
    """

    _: KW_ONLY
    reg: float = 1e-3

    def check_parameters(self) -> None:
        """Raise InvalidParameter when a parameter is outside its range."""
        super().check_parameters()
        check_weighted(self.n_neighbors, self.reservoir)
        check_number("reg", self.reg, 0.0)

    def solve_sample(self, state: Reservoir) -> LocallyLinearEmbedding:
        """Return the coordinates of the sampled rows, which also place other rows."""
        return locally_linear(state.kept, self.n_components, self.n_neighbors, self.reg, self.scaling == "unit")
