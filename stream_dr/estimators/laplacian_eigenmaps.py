"""LaplacianEigenmaps: coordinates that keep neighbours together, on a sample, with Nyström's formula for other rows.

Minimises Σ_ij (z_i − z_j)² S_ij with zᵀ D z = 1 [GLPLS eq. 2.26-2.29] over the sampled rows; see
solve/laplacian_eigenmaps.py.

Cost: learning as a reservoir, O(1) a row and O(entries) for the few kept; memory 8 · reservoir · features bytes
dense; solving O(reservoir³); transform O(reservoir · features) a row. Merges: yes, by a
hypergeometric draw. Unlearns: no.

Why this way: no label-aware weights here. A new row has no label, so it could not be attached to the graph it is
placed by; LPP and NPE, whose new rows need no graph, have the option.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

from stream_dr.estimators.fitting.parameter_checks import check_choice, check_number
from stream_dr.estimators.fitting.reservoir_method import Embedding
from stream_dr.solve.graph import Edges, neighbourhood_graph
from stream_dr.solve.laplacian_eigenmaps import Eigenmap, laplacian_eigenmaps
from stream_dr.statistics.reservoir import Reservoir


@dataclass(eq=False, repr=False)
class LaplacianEigenmaps(Embedding):
    """Laplacian eigenmaps of a uniform sample of the rows.

    Time a row O(1) to learn, O(reservoir · features) to transform; memory 8 · reservoir · features bytes. Merges;
    does not unlearn. Left out: label-aware weights (see the module), components with 1 − λ ≤ 1e-6, which new rows
    cannot have.

    Parameters
    ----------
    n_neighbors : int ≥ 1, default 10
        Neighbours k of a row; as many as `reservoir` join all rows, for weights="heat" and edges="or".
    weights : {"binary", "heat"}, default "binary"
        Edges of weight 1, or exp(−|·|²/t).
    temperature : float > 0 or None, default None
        t; None: the mean squared length of the edges.
    edges : {"average", "or"}, default "average"
        "average": an edge that only one of its ends counts has half its weight, and a row is the first of its own k, as in
        scikit-learn's SpectralEmbedding; "or": all of it, and a row has k others [GLPLS eq. 2.25].
    radius : float > 0 or None, default None
        ε: an edge joins rows at most this far apart, whatever n_neighbors and edges are.
    drop_first : bool, default True
        Pass over the eigenvectors of λ = 0, as many as the graph has parts; False: keep them, for k clusters by the first k.
    scaling : {"unit", "source"}, default "unit"
        "unit": the sampled rows have variance 1 along every component; "source": zᵀ D z = 1, as scikit-learn's.

    Attributes
    ----------
    eigenvalues_ : ndarray (components,), float64
        λ of the normalised Laplacian, ascending.
    parts_ : int
        Parts of the sample's graph. Where there are several, raise n_neighbors for one: coordinates in one part say
        nothing about the others.

    >>> import numpy as np
    >>> from stream_dr import LaplacianEigenmaps
    >>> LaplacianEigenmaps(n_components=1, n_neighbors=3).fit_transform(np.arange(12.0)[:, None]).shape
    (12, 1)
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

    def fitted(self, state: Reservoir) -> Eigenmap:
        """Places of the sampled rows, and the rule for others."""
        heat, edges = self.weights == "heat", self.edges
        graph = neighbourhood_graph(state.kept, self.n_neighbors, heat, self.temperature, None, edges, self.radius)
        return laplacian_eigenmaps(state.kept, graph, self.n_components, self.scaling == "unit", self.drop_first)

    @property
    def parts_(self) -> int:
        """Parts of the sample's graph. Where there are several, each is a cluster of its own and its rows' coordinates say
        nothing about the other parts; raise n_neighbors for one."""
        projection: Any = self.projection()
        return int(getattr(projection, "inner", projection).parts)
