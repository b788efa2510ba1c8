"""LPP (locality preserving projections), computed from a sample of the rows."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal

import numpy as np
import scipy.sparse as sp

from stream_dr.estimators.fitting.parameter_checks import check_choice, check_number
from stream_dr.estimators.fitting.reservoir_method import ByClass, ReservoirMethod
from stream_dr.projection import Linear
from stream_dr.solve.graph import Edges, neighbourhood_graph
from stream_dr.solve.locality import locality_projection
from stream_dr.statistics.reservoir import Reservoir


@dataclass(eq=False, repr=False)
class LPP(ReservoirMethod):
    """Find linear directions along which neighbours stay together.

    Locality preserving projections, the linear form of Laplacian eigenmaps. The projection is
    computed from a uniform sample of the rows.

    >>> from sklearn.datasets import load_iris
    >>> from stream_dr import LPP
    >>> LPP().fit(load_iris().data).components_.shape
    (2, 4)

    The method is unsupervised unless `label_aware` is true. States can be merged. The merged
    sample is drawn from the two samples in proportion to the lengths of their streams. Rows cannot
    be unlearned.

    Parameters
    ----------
    n_neighbors : int ≥ 1, default 10
        Number k of nearest rows to which a row is joined by edges. To join all rows, set
        n_neighbors to `reservoir`, weights to "heat" and edges to "or".
    weights : {"heat", "binary"}, default "heat"
        Weight of an edge. "heat" is exp(−r²/t) for two rows at the distance r. "binary" is 1.
    temperature : float > 0 or None, default None
        Parameter t of weights="heat". None means the mean squared length of the edges.
    edges : {"average", "or"}, default "average"
        Weight of one-sided edges. An edge is one-sided if only one of its rows is among the k
        nearest rows of the other. "average" halves the weight of such an edge. A row then counts
        as the first of its own k nearest rows. "or" does not change the weight. A row then has k
        neighbours other than itself [GLPLS eq. 2.35].
    radius : float > 0 or None, default None
        If set, an edge joins two rows if their distance is at most this radius. n_neighbors and
        edges then have no effect.
    label_aware : bool, default False
        Remove edges between rows of different classes. Needs y.
    gamma : float ≥ 0, default 0.0
        Ridge that is added to both Xᵀ L X and Xᵀ D X (see Notes). With gamma=0 there is no ridge,
        except if the sample has at most as many rows as features. In this case the ridge is 1e-3
        of the mean eigenvalue of Xᵀ D X.
    scaling : {"unit", "source"}, default "unit"
        With "unit", the sampled rows have variance 1 along every component. With "source",
        wᵀ Xᵀ D X w = 1 (see Notes), as in the paper.

    Attributes
    ----------
    eigenvalues_ : ndarray (components,), float64
        Eigenvalues λ, ascending.

    Notes
    -----
    Solves Xᵀ L X w = λ Xᵀ D X w for the smallest λ [GLPLS eq. 2.35, 2.36]. X (reservoir, features)
    are the sampled rows, centred. The source does not centre them, so that its first component may
    only be their mean. The neighbourhood graph of these rows has the weights S (reservoir,
    reservoir). D is the diagonal matrix of the row sums of S, and L = D − S is the graph's
    Laplacian. Directions along which the sampled rows do not vary are left out.

    Learning a row costs O(1), or O(entries) if the row is sampled. Solving costs O(reservoir ·
    features · min(reservoir, features)), and transforming a row costs O(entries · components). The
    state of dense rows takes 8 · reservoir · features bytes.
    """

    target_kinds = ByClass()  # type: ignore[assignment]
    fixed: ClassVar[tuple[str, ...]] = (*ReservoirMethod.fixed, "label_aware")

    _: KW_ONLY
    weights: Literal["heat", "binary"] = "heat"
    temperature: float | None = None
    edges: Edges = "average"
    radius: float | None = None
    label_aware: bool = False
    gamma: float = 0.0

    def check_parameters(self) -> None:
        """Raise InvalidParameter when a parameter is outside its range."""
        super().check_parameters()
        check_choice("weights", self.weights, ("heat", "binary"))
        check_choice("edges", self.edges, ("average", "or"))
        if self.radius is not None:
            check_number("radius", self.radius, 0.0, open_low=True)
        check_choice("label_aware", self.label_aware, (False, True))
        check_number("gamma", self.gamma, 0.0)
        if self.temperature is not None:
            check_number("temperature", self.temperature, 0.0, open_low=True)

    def solve_sample(self, state: Reservoir) -> Linear:
        """Return the projection to the directions with the smallest eigenvalues."""
        if not len(state.numbers):
            return Linear(np.zeros(state.n_features), np.zeros((state.n_features, 0)), np.zeros(0), "exact")
        codes = state.codes if self.label_aware else None
        heat = self.weights == "heat"
        graph = neighbourhood_graph(
            state.kept, self.n_neighbors, heat, self.temperature, codes, self.edges, self.radius
        )
        D = sp.diags_array(graph.degrees, format="csr")
        return locality_projection(
            state.kept, D - graph.weights, D, self.n_components, self.gamma, self.scaling == "unit"
        )
