"""GraphWMV: directions along which rows differ most, by the weights of pairs of rows.

WMV stands for weighted maximum variance. The weights come from a neighbourhood graph of a sample of
the rows, from labels, or from both.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, cast

import numpy as np
import scipy.sparse as sp

from stream_dr.estimators.fitting.parameter_checks import check_choice, check_number
from stream_dr.estimators.fitting.reservoir_method import ReservoirMethod
from stream_dr.projection import Linear
from stream_dr.solve.graph import Edges, neighbourhood_graph
from stream_dr.solve.locality import largest_form
from stream_dr.statistics.reservoir import Reservoir


class _ByWeights:
    """Descriptor that returns the kinds of targets of an estimator with `alpha` and `beta`.

    If alpha or beta is not 0, the estimator learns from one label a row ("class"). Otherwise the
    estimator is unsupervised and there are no kinds.
    """

    def __get__(self, instance: Any, owner: type) -> tuple[str, ...]:
        return ("class",) if instance is not None and (instance.alpha or instance.beta) else ()


@dataclass(eq=False, repr=False)
class GraphWMV(ReservoirMethod):
    """Find directions along which pairs of rows are far apart, by the weights of a graph.

    Weighted maximum variance. The weight of a pair of rows comes from a neighbourhood graph, from
    the rows' labels, or from both. The projection is computed from a uniform sample of the rows.
    Use `WMV` if all weights come from labels, because it uses all rows.

    >>> from sklearn.datasets import load_iris
    >>> from stream_dr import GraphWMV
    >>> GraphWMV(graph=-1.0, alpha=-1.0, beta=1.0).fit(*load_iris(return_X_y=True)).components_.shape
    (2, 4)

    The method is unsupervised if alpha and beta are 0. States can be merged. The merged sample is
    drawn from the two samples in proportion to the lengths of their streams. Rows cannot be
    unlearned.

    Parameters
    ----------
    graph : float, default 1.0
        Factor μ of the weights of the graph's edges. With a negative factor, neighbours stay
        together.
    alpha : float, default 0.0
        Weight α of two rows of the same class.
    beta : float ≥ 0, default 0.0
        Weight β of two rows of different classes.
    unlabelled : {"skip", "use"}, default "skip"
        What to do with rows without a label. "use" learns these rows. They are joined by edges of
        the graph, but have no weights from labels.
    n_neighbors : int ≥ 1, default 10
        Number k of nearest rows to which a row is joined by edges. To join all rows, set
        n_neighbors to `reservoir` and edges to "or".
    weights : {"heat", "binary"}, default "heat"
        Weight of an edge. "heat" is exp(−r²/t) for two rows at the distance r. "binary" is 1.
    temperature : float > 0 or None, default None
        Parameter t of weights="heat". None means the mean squared length of the edges.
    edges : {"average", "or"}, default "average"
        Weight of one-sided edges. An edge is one-sided if only one of its rows is among the k
        nearest rows of the other. "average" halves the weight of such an edge, and "or" does not
        change the weight (see `LPP`).
    radius : float > 0 or None, default None
        If set, an edge joins two rows if their distance is at most this radius. n_neighbors and
        edges then have no effect.
    scaling : {"unit", "source"}, default "unit"
        With "unit", the sampled rows have variance 1 along every component. With "source", the
        components are orthonormal, as in the paper.

    Attributes
    ----------
    eigenvalues_ : ndarray (components,), float64
        Eigenvalues of Xᵀ L X (see Notes), descending.

    Notes
    -----
    Maximises ½ Σ_ij C_ij (wᵀ(x_i − x_j))² over orthonormal directions w [WMV; mathematics §7]. The
    sum is over all pairs of sampled rows x_i and x_j. The weight C_ij of a pair is μ times the
    weight of the edge between the two rows. α is added if both rows have the same label, and β if
    they have different labels.

    Components are the eigenvectors of Xᵀ L X, largest eigenvalue first. X (reservoir, features)
    are the sampled rows, C (reservoir, reservoir) are the weights, D is the diagonal matrix of the
    row sums of C, and L = D − C.

    A row has about k edges, but a weight from labels with every other labelled row. For equal
    influence of edges and labels, μ should be (number of labelled rows) / k times as large as α
    and β.

    Learning a row costs O(1), or O(entries) if the row is sampled. Solving costs O(reservoir ·
    features · min(reservoir, features)), and transforming a row costs O(entries · components). The
    state of dense rows takes 8 · reservoir · features bytes.
    """

    target_kinds = _ByWeights()  # type: ignore[assignment]
    fixed: ClassVar[tuple[str, ...]] = (*ReservoirMethod.fixed, "alpha", "beta", "unlabelled")

    _: KW_ONLY
    graph: float = 1.0
    alpha: float = 0.0
    beta: float = 0.0
    unlabelled: Literal["skip", "use"] = "skip"
    weights: Literal["heat", "binary"] = "heat"
    temperature: float | None = None
    edges: Edges = "average"
    radius: float | None = None

    def check_parameters(self) -> None:
        """Raise InvalidParameter when a parameter is outside its range."""
        super().check_parameters()
        check_number("graph", self.graph)
        check_number("alpha", self.alpha)
        check_number("beta", self.beta, 0.0)
        check_choice("unlabelled", self.unlabelled, ("skip", "use"))
        check_choice("weights", self.weights, ("heat", "binary"))
        check_choice("edges", self.edges, ("average", "or"))
        for name in ("temperature", "radius"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), 0.0, open_low=True)

    def solve_sample(self, state: Reservoir) -> Linear:
        """Return the directions with the largest eigenvalues, from the sampled rows."""
        if not len(state.numbers):
            return Linear(np.zeros(state.n_features), np.zeros((state.n_features, 0)), np.zeros(0), "exact")
        heat = self.weights == "heat"
        graph = neighbourhood_graph(
            state.kept, self.n_neighbors, heat, self.temperature, edges=self.edges, radius=self.radius
        )
        laplacian = sp.diags_array(graph.degrees, format="csr") - graph.weights
        labels = _indicator(state.codes)

        def product(columns: np.ndarray) -> np.ndarray:
            """Return L @ columns (sampled, m)."""
            out = self.graph * (laplacian @ columns)
            if labels.shape[1]:
                n = np.asarray(labels.sum(axis=0)).ravel()
                C = self.beta + (self.alpha - self.beta) * np.eye(len(n))
                out += (labels @ (C @ n))[:, None] * columns - labels @ (C @ (labels.T @ columns))
            return cast(np.ndarray, out)

        return largest_form(state.kept, product, self.n_components, self.scaling == "unit")


def _indicator(codes: np.ndarray) -> sp.csr_array:
    """Return class indicators (rows, classes), with a 1 in the column of each row's class.

    codes: (rows,), index of each row's class, or −1 for rows without a label. Their indicators
        are 0.
    """
    known = np.flatnonzero(codes >= 0)
    shape = (len(codes), int(codes.max(initial=-1)) + 1)
    return sp.csr_array((np.ones(len(known)), (known, codes[known])), shape=shape)
