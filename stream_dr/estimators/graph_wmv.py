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
    """Descriptor of `target_kinds`: one label a row ("class") if alpha or beta is not 0."""

    def __get__(self, instance: Any, owner: type) -> tuple[str, ...]:
        return ("class",) if instance is not None and (instance.alpha or instance.beta) else ()


@dataclass(eq=False, repr=False)
class GraphWMV(ReservoirMethod):
    """Find directions along which pairs of rows are far apart, by the weights of a graph.

    Weighted maximum variance, where the weight of a pair of rows comes from a neighbourhood graph,
    from the rows' labels, or from both. The projection is computed from a uniform sample of the
    rows. If all rows have labels and the weights come from them alone, `WMV` uses all rows.

    >>> from sklearn.datasets import load_iris
    >>> from stream_dr import GraphWMV
    >>> GraphWMV(graph=-1.0, alpha=-1.0, beta=1.0).fit(*load_iris(return_X_y=True)).components_.shape
    (2, 4)

    Unsupervised if alpha and beta are 0. Merges. Does not unlearn.

    Parameters
    ----------
    graph : float, default 1.0
        Factor μ of the graph's weights. With a negative factor, neighbours stay together.
    alpha : float, default 0.0
        Weight α of two rows of the same class.
    beta : float ≥ 0, default 0.0
        Weight β of two rows of different classes.
    unlabelled : {"skip", "use"}, default "skip"
        What to do with rows without a label. "use" learns them: they have edges of the graph, and
        no weights from labels.
    n_neighbors : int ≥ 1, default 10
        Number of neighbours k of a row. To join all rows by edges, set it to `reservoir`, with
        edges="or".
    weights : {"heat", "binary"}, default "heat"
        Weight of an edge. "heat" is exp(−|·|²/t), with the distance |·| of the two rows. "binary"
        is 1.
    temperature : float > 0 or None, default None
        Parameter t of the weights "heat". None takes the mean squared length of the edges.
    edges : {"average", "or"}, default "average"
        Weight of one-sided edges, as in `LPP`.
    radius : float > 0 or None, default None
        If set, an edge joins rows at most this far apart. n_neighbors and edges have no effect
        then.
    scaling : {"unit", "source"}, default "unit"
        With "unit", the sampled rows have variance 1 along every component. With "source", the
        components are orthonormal, as in the source.

    Attributes
    ----------
    eigenvalues_ : ndarray (components,), float64
        Eigenvalues of Xᵀ L X, descending.

    Notes
    -----
    Maximises ½ Σ_ij C_ij (wᵀ(x_i − x_j))² for orthonormal w [WMV; mathematics §7]. Components are
    the eigenvectors of Xᵀ L X of largest algebraic value. X are the sampled rows, L = D − C, and D
    are the row sums of C. C_ij is μ times the weight of the edge between the rows i and j, plus α
    if both have the same label, or β if both have labels that differ.

    A row has about k edges, and a weight from labels with every other labelled row. So for equal
    influence, μ has to be larger than α and β by the number of labelled rows divided by k.

    Learning a row costs O(1), and O(entries) for the few rows that are sampled. Solving costs
    O(reservoir · features · min(reservoir, features)), transforming a row O(entries · components).
    State: 8 · reservoir · features bytes, dense.
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
        """Return the directions of largest eigenvalue, from the sampled rows in `state`."""
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
    """Return the class indicator (rows, classes). Rows of code −1 are zero."""
    known = np.flatnonzero(codes >= 0)
    shape = (len(codes), int(codes.max(initial=-1)) + 1)
    return sp.csr_array((np.ones(len(known)), (known, codes[known])), shape=shape)
