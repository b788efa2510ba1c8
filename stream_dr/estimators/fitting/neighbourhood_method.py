"""Base class of methods on a nearest-neighbour graph of sampled rows."""

from dataclasses import KW_ONLY, dataclass
from typing import Literal

import numpy as np

from stream_dr.estimators.fitting.parameter_checks import check_choice, check_number_in_range
from stream_dr.estimators.fitting.reservoir_method import ReservoirMethod
from stream_dr.solve.graph import Edges, Graph, neighbourhood_graph
from stream_dr.statistics.reservoir import Reservoir


@dataclass(eq=False, repr=False)
class NeighbourhoodMethod(ReservoirMethod):
    """Base class of methods on a nearest-neighbour graph of sampled rows.

    An edge of the graph joins a row to one of its nearest rows.

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
        as the first of its own k nearest rows, as in scikit-learn's SpectralEmbedding. "or" does
        not change the weight. A row then has k neighbours other than itself [GLPLS eq. 2.25,
        2.35].
    radius : float > 0 or None, default None
        If set, an edge joins two rows if their distance is at most this radius. n_neighbors and
        edges then have no effect.
    """

    _: KW_ONLY
    weights: Literal["heat", "binary"] = "heat"
    temperature: float | None = None
    edges: Edges = "average"
    radius: float | None = None

    def check_parameters(self) -> None:
        """Raise InvalidParameter if a parameter is outside its range."""
        super().check_parameters()
        check_choice("weights", self.weights, ("heat", "binary"))
        check_choice("edges", self.edges, ("average", "or"))
        for name in ("temperature", "radius"):
            if getattr(self, name) is not None:
                check_number_in_range(name, getattr(self, name), 0.0, exclude_low=True)

    def sample_graph(self, sample: Reservoir, class_codes: np.ndarray | None = None) -> Graph:
        """Return the neighbourhood graph of the sampled rows.

        class_codes: (sampled rows,), index of each row's class. Edges between rows of different
            classes are removed. If None, no edge is removed.
        """
        heat = self.weights == "heat"
        return neighbourhood_graph(
            sample.kept, self.n_neighbors, heat, self.temperature, class_codes, self.edges, self.radius
        )
