"""LaplacianEigenmaps: coordinates that keep neighbours together, on a sample."""

from dataclasses import KW_ONLY, dataclass
from typing import Literal, cast

from stream_dr.estimators.fitting.mapping import inner_projection
from stream_dr.estimators.fitting.parameter_checks import check_choice, check_number
from stream_dr.estimators.fitting.reservoir_method import Embedding
from stream_dr.solve.eigenmap import Eigenmap, laplacian_eigenmaps
from stream_dr.solve.graph import Edges, neighbourhood_graph
from stream_dr.statistics.reservoir import Reservoir


@dataclass(eq=False, repr=False)
class LaplacianEigenmaps(Embedding):
    """Place rows so that neighbours stay together.

    Laplacian eigenmaps of a uniform sample of the rows. Other rows are placed by Nyström's
    formula. Unsupervised: y is ignored.

    >>> import numpy as np
    >>> from stream_dr import LaplacianEigenmaps
    >>> LaplacianEigenmaps(n_components=1, n_neighbors=3).fit_transform(np.arange(12.0)[:, None]).shape
    (12, 1)

    Merges, by a hypergeometric draw. Does not unlearn. Use `LPP` for a linear map, or for
    neighbours within classes.

    Parameters
    ----------
    n_neighbors : int ≥ 1, default 10
        Number of neighbours k of a row. As many as `reservoir` join all rows, for weights="heat"
        and edges="or".
    weights : {"binary", "heat"}, default "binary"
        Weight of an edge: 1, or exp(−|·|²/t).
    temperature : float > 0 or None, default None
        t. None takes the mean squared length of the edges.
    edges : {"average", "or"}, default "average"
        With "average", an edge that only one of its ends counts has half its weight, and a row is
        the first of its own k, as in scikit-learn's SpectralEmbedding. With "or", it has all of
        its weight, and a row has k others [GLPLS eq. 2.25].
    radius : float > 0 or None, default None
        ε: an edge joins rows at most this far apart, whatever n_neighbors and edges are.
    drop_first : bool, default True
        Pass over the eigenvectors of λ = 0, as many as the graph has parts. False keeps them, for
        k clusters by the first k.
    scaling : {"unit", "source"}, default "unit"
        With "unit", the sampled rows have variance 1 along every component. With "source", zᵀ D z
        = 1, as scikit-learn's.

    Attributes
    ----------
    eigenvalues_ : ndarray (components,), float64
        λ of the normalised Laplacian, ascending.
    parts_ : int
        Number of connected parts of the sample's graph. If there are several, raise n_neighbors
        until there is one: coordinates in one part say nothing about the others.

    Notes
    -----
    Minimises Σ_ij (z_i − z_j)² S_ij with zᵀ D z = 1 over the sampled rows, S the weights of their
    edges and D their row sums [GLPLS eq. 2.26-2.29].

    Learning a row costs O(1), and O(entries) for the few that are sampled. Solving costs
    O(reservoir³), transforming a row O(reservoir · features). State: 8 · reservoir · features
    bytes, dense.

    Left out: components with 1 − λ ≤ 1e-6, which new rows cannot have. Left out, too: label-aware
    weights, since a new row has no label and could not be attached to such a graph.
    """

    _: KW_ONLY
    weights: Literal["binary", "heat"] = "binary"
    temperature: float | None = None
    edges: Edges = "average"
    radius: float | None = None
    drop_first: bool = True

    def check_parameters(self) -> None:
        """Raise InvalidParameter when a parameter is outside its range."""
        super().check_parameters()
        check_choice("weights", self.weights, ("binary", "heat"))
        check_choice("edges", self.edges, ("average", "or"))
        check_choice("drop_first", self.drop_first, (False, True))
        if self.radius is not None:
            check_number("radius", self.radius, 0.0, open_low=True)
        if self.temperature is not None:
            check_number("temperature", self.temperature, 0.0, open_low=True)

    def solve_sample(self, state: Reservoir) -> Eigenmap:
        """Return the places of the sampled rows, and the rule for other rows."""
        heat, edges = self.weights == "heat", self.edges
        graph = neighbourhood_graph(state.kept, self.n_neighbors, heat, self.temperature, None, edges, self.radius)
        return laplacian_eigenmaps(state.kept, graph, self.n_components, self.scaling == "unit", self.drop_first)

    @property
    def parts_(self) -> int:
        """Number of connected parts of the sample's graph.

        If there are several, each is a cluster of its own and coordinates in one say nothing about
        the others. Raise n_neighbors until there is one.
        """
        return cast(Eigenmap, inner_projection(self.projection())).parts
