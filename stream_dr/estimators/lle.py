"""LLE (locally linear embedding) of a sample of the rows."""

from dataclasses import KW_ONLY, dataclass

from stream_dr.estimators.fitting.parameters import check_number_in_range
from stream_dr.estimators.fitting.reservoir_method import Embedding, check_weighted_neighbours
from stream_dr.solve.embedding import BarycentricProjection, locally_linear_embedding
from stream_dr.statistics.reservoir import Reservoir


@dataclass(eq=False, repr=False)
class LLE(Embedding):
    """Find coordinates that preserve weighted means of neighbours.

    Locally linear embedding of a uniform sample of the rows. The coordinates of a row outside the
    sample are a weighted mean of the coordinates of the row's nearest sampled rows. The method is
    unsupervised, so y is ignored.

    >>> import numpy as np
    >>> from stream_dr import LLE
    >>> LLE(n_components=1, n_neighbors=3).fit_transform(np.arange(12.0)[:, None]).shape
    (12, 1)

    States can be merged. The merged sample is drawn from the two samples in proportion to the
    lengths of their streams. Rows cannot be unlearned. Use `NPE` for a linear map, or for
    neighbours within classes.

    Parameters
    ----------
    n_neighbors : int ≥ 1, default 10
        Number of neighbours k of a row, without the row itself. At most 500. A larger number is
        allowed only if `reservoir`, the maximum number of sampled rows, is at most 500.
    reg : float ≥ 0, default 0.001
        Regularisation of the weights. `reg` times the trace of a row's local Gram matrix is added
        to the diagonal of this matrix.
    scaling : {"unit", "source"}, default "unit"
        With "unit", the sampled rows have variance 1 along every component. With "source", each
        component's coordinates have length 1, as in scikit-learn.

    Attributes
    ----------
    eigenvalues_ : ndarray (components,), float64
        Eigenvalues of (I − W)ᵀ(I − W), ascending. The weights W are explained in the Notes.

    Notes
    -----
    Every sampled row is approximated by a weighted mean of its neighbours. The weights W
    (reservoir, reservoir) are called barycentric. The coordinates are chosen such that each row's
    coordinates are the mean of its neighbours' coordinates, with the weights W [GLPLS eq.
    2.31-2.34].
    With scaling="source", the sampled rows get the same coordinates as by scikit-learn's
    LocallyLinearEmbedding.

    Set more `n_neighbors` if there is a warning that an eigenvalue is only rounding error. Several
    groups of rows then have no neighbours outside their own group, and the component is constant on
    each group. (If the groups are not linked by any other rows, there is no warning, because such
    components are skipped.)

    Labels are not used, because a new row has no label by which its neighbours could be chosen.
    The Hessian and modified variants are not implemented.

    Learning a row costs O(1), or O(entries) if the row is sampled. Solving costs O(reservoir³),
    and transforming a row costs O((reservoir + k²) · features). The state of dense rows takes 8 ·
    reservoir · features bytes.
    """

    _: KW_ONLY
    reg: float = 1e-3

    def check_parameters(self) -> None:
        """Raise InvalidParameter when a parameter is outside its range."""
        super().check_parameters()
        check_weighted_neighbours(self.n_neighbors, self.reservoir)
        check_number_in_range("reg", self.reg, 0.0)

    def solve_inner(self, state: Reservoir) -> BarycentricProjection:
        """Return the sampled rows' coordinates (embedding) as a projection.

        Other rows are projected by their nearest sampled rows.
        """
        unit = self.scaling == "unit"
        return locally_linear_embedding(state.kept, self.n_components, self.n_neighbors, self.reg, unit)
