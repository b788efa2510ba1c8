"""LaplacianEigenmaps, coordinates of sampled rows in which neighbours stay together."""

from dataclasses import KW_ONLY, dataclass
from typing import Literal, cast

from stream_dr.estimators.fitting.mapping import inner_projection
from stream_dr.estimators.fitting.parameters import check_choice
from stream_dr.estimators.fitting.reservoir_method import Embedding, NeighbourhoodMethod
from stream_dr.solve.embedding import Eigenmap, laplacian_eigenmaps
from stream_dr.statistics.reservoir import Reservoir


@dataclass(eq=False, repr=False)
class LaplacianEigenmaps(Embedding, NeighbourhoodMethod):
    """Find coordinates of the rows in which neighbours stay together.

    Laplacian eigenmaps of a uniform sample of the rows. Rows outside the sample get coordinates by
    Nyström's formula (a weighted mean of their neighbours' coordinates). The method is
    unsupervised, so y is ignored.

    >>> import numpy as np
    >>> from stream_dr import LaplacianEigenmaps
    >>> LaplacianEigenmaps(n_components=1, n_neighbors=3).fit_transform(np.arange(12.0)[:, None]).shape
    (12, 1)

    States can be merged. The merged sample is drawn from the two samples in proportion to the
    lengths of their streams. Rows cannot be unlearned. Use `LPP` for a linear map, or for
    neighbours within classes.

    Parameters
    ----------
    weights : {"heat", "binary"}, default "binary"
        Weight of an edge. "binary" is 1. "heat" is exp(−r²/t) for two rows at the distance r.
    drop_first : bool, default True
        Leave out the eigenvectors of eigenvalue 0. The graph has one such eigenvector for each of
        its connected components. Set drop_first to False to find k clusters by the first k
        eigenvectors.
    scaling : {"unit", "source"}, default "unit"
        With "unit", the sampled rows have variance 1 along every component. With "source",
        zᵀ D z = 1 (see Notes), as in scikit-learn.

    Attributes
    ----------
    eigenvalues_ : ndarray (components,), float64
        Eigenvalues λ of the normalised Laplacian, ascending.
    parts_ : int
        Number of connected components of the sample's graph. If the number is not 1, coordinates
        of rows in different connected components cannot be compared. Increase n_neighbors until
        the number is 1.

    Notes
    -----
    Minimises Σ_ij (z_i − z_j)² S_ij with zᵀ D z = 1 [GLPLS eq. 2.26-2.29]. z_i is the coordinate
    of the sampled row i. S (r, r) are the weights of the edges of r sampled rows. D is the diagonal
    matrix of the row sums of S.

    Components with 1 − λ ≤ 1e-6 are left out, because Nyström's formula cannot extend them to new
    rows. Labels are not used, because a new row has no label by which its edges could be chosen.

    Learning a row costs O(1), or O(entries) if the row is sampled. Solving costs O(r³) for r
    sampled rows, and transforming a row costs O(r · features). The state of dense rows takes 8 · r
    · features bytes.
    """

    _: KW_ONLY
    weights: Literal["heat", "binary"] = "binary"
    drop_first: bool = True

    def check_parameters(self) -> None:
        """Raise InvalidParameter when a parameter is outside its range."""
        super().check_parameters()
        check_choice("drop_first", self.drop_first, (False, True))

    def solve_inner(self, state: Reservoir) -> Eigenmap:
        """Return the sampled rows' coordinates (embedding) as a projection.

        Other rows are projected by their neighbours among the sampled rows.
        """
        graph = self.sample_graph(state)
        unit = self.scaling == "unit"
        return laplacian_eigenmaps(state.kept, graph, self.n_components, unit, self.drop_first)

    @property
    def parts_(self) -> int:
        """Number of connected components of the sample's graph.

        If the number is not 1, coordinates of rows in different connected components cannot be
        compared. Increase n_neighbors until the number is 1.
        """
        return cast(Eigenmap, inner_projection(self.projection())).parts
