"""GraphWMV: directions in which weighted pairs of rows differ most.

WMV stands for weighted maximum variance. The weights of pairs of rows come from a neighbourhood
graph, from labels, or from a graph and labels. The graph joins rows of a sample of the stream.
"""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal, cast

import numpy as np
import scipy.sparse as sp

from stream_dr.estimators.fitting.parameters import check_choice, check_number_in_range
from stream_dr.estimators.fitting.reservoir_method import ClassTargetsIfAny, NeighbourhoodMethod
from stream_dr.projection import Linear
from stream_dr.solve.discriminant import largest_eigenvalue_projection, projection_without_components
from stream_dr.statistics.reservoir import Reservoir


@dataclass(eq=False, repr=False)
class GraphWMV(NeighbourhoodMethod):
    """Find directions in which weighted pairs of rows differ most.

    Weighted maximum variance. The weight of a pair of rows comes from a neighbourhood graph, from
    the rows' labels, or from the graph and the labels. The projection is computed from a uniform
    sample of the rows. Use `WMV` if all weights come from labels, because it uses all rows.

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
        What to do with rows without a label. "skip" ignores these rows. "use" learns these rows.
        They then have edges of the graph, but no weights from labels.
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
    weight of the edge between the two rows. If the two rows have equal labels, α is added to C_ij.
    If they have different labels, β is added.

    Components are the eigenvectors of Xᵀ L X, largest eigenvalue first. X (reservoir, features)
    are the sampled rows, C (reservoir, reservoir) are the weights, D is the diagonal matrix of the
    row sums of C, and L = D − C.

    A row has about k edges, where k is `n_neighbors`. But it has a weight from labels with every
    other labelled row. For equal influence of edges and labels, μ should be (number of labelled
    rows) / k times as large as α and β.

    Learning a row costs O(1), or O(entries) if the row is sampled. Solving costs O(reservoir ·
    features · min(reservoir, features)), and transforming a row costs O(entries · components). The
    state of dense rows takes 8 · reservoir · features bytes.
    """

    target_kinds = ClassTargetsIfAny("alpha", "beta")  # type: ignore[assignment]
    fixed: ClassVar[tuple[str, ...]] = (*NeighbourhoodMethod.fixed, "alpha", "beta", "unlabelled")

    _: KW_ONLY
    graph: float = 1.0
    alpha: float = 0.0
    beta: float = 0.0
    unlabelled: Literal["skip", "use"] = "skip"

    def check_parameters(self) -> None:
        """Raise InvalidParameter when a parameter is outside its range."""
        super().check_parameters()
        check_number_in_range("graph", self.graph)
        check_number_in_range("alpha", self.alpha)
        check_number_in_range("beta", self.beta, 0.0)
        check_choice("unlabelled", self.unlabelled, ("skip", "use"))

    def solve_inner(self, state: Reservoir) -> Linear:
        """Return the projection in which weighted pairs of sampled rows differ most."""
        # `kept` has the sampled rows, and `numbers` their numbers in the stream. Without sampled
        # rows, there are no pairs.
        if not len(state.numbers):
            return projection_without_components(np.zeros(state.n_features))
        # The graph has an edge between each sampled row and its neighbours. Its Laplacian (sampled
        # rows, sampled rows) is the diagonal matrix of the degrees minus the weights of the edges.
        graph = self.sample_graph(state)
        graph_laplacian = sp.diags_array(graph.degrees, format="csr") - graph.weights
        # Row i of `indicators` (sampled rows, classes) is 1 at the class of sampled row i.
        # `codes` has the class of each row, −1 for a row without a label.
        labelled = np.flatnonzero(state.codes >= 0)
        shape = (len(state.codes), int(state.codes.max(initial=-1)) + 1)
        entries = (labelled, state.codes[labelled])
        indicators = sp.csr_array((np.ones(len(labelled)), entries), shape=shape)

        def multiply_by_laplacian(columns: np.ndarray) -> np.ndarray:
            """Return the product (sampled rows, m) of the Laplacian and m columns.

            The Laplacian is that of all weights, from the graph and from labels.
            """
            # `self.graph` is the parameter μ, by which the weights of the edges are multiplied.
            product = self.graph * (graph_laplacian @ columns)
            # Add the product of `columns` and the Laplacian of the weights from labels. The
            # Laplacian itself, D − Y C Yᵀ with Y = `indicators`, is not formed. n has the number of
            # rows of each class. C (classes, classes) has the weights of pairs of rows: alpha for
            # equal classes, beta for different ones. D is diagonal and has the row sums (degrees).
            # Without labels, `indicators` has no columns, and there is nothing to add.
            if indicators.shape[1]:
                n = np.asarray(indicators.sum(axis=0)).ravel()
                C = self.beta + (self.alpha - self.beta) * np.eye(len(n))
                degrees = indicators @ (C @ n)
                product += degrees[:, None] * columns - indicators @ (C @ (indicators.T @ columns))
            return cast(np.ndarray, product)

        unit = self.scaling == "unit"
        return largest_eigenvalue_projection(state.kept, multiply_by_laplacian, self.n_components, unit)
