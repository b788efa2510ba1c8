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
        """Return the projection by weighted maximum variance (WMV).

        Its directions w maximise ½ Σ C_ij (wᵀ(x_i − x_j))² over pairs of sampled rows x_i and x_j.
        The weight C_ij is `graph` times the weight of the edge between the two rows in their
        neighbourhood graph. `alpha` is added for rows of one class, `beta` for rows of different
        classes.

        The directions are eigenvectors of Xᵀ L X. X are the sampled rows, and L = D − C is the
        Laplacian of the weights. D is the diagonal matrix of the row sums of C.
        """
        # Without sampled rows, there are no pairs.
        if not len(state.numbers):
            return projection_without_components(np.zeros(state.n_features))
        # L is a sum. The first part is the Laplacian of the edges' weights, times `graph`.
        edges = self.sample_graph(state)
        edge_laplacian = sp.diags_array(edges.degrees, format="csr") - edges.weights
        edge_factor = self.graph

        # The second part is the Laplacian of the weights from labels, Y P Yᵀ. P (classes, classes)
        # has the weight of a pair by its classes.
        Y = _class_indicators(state.codes)
        classes = Y.shape[1]
        P = self.beta + (self.alpha - self.beta) * np.eye(classes)
        rows_per_class = np.asarray(Y.sum(axis=0)).ravel()
        label_degrees = Y @ (P @ rows_per_class)

        def multiply_by_laplacian(columns: np.ndarray) -> np.ndarray:
            """Return L @ columns (sampled rows, m), without forming L.

            L is edge_factor · edge_laplacian plus the Laplacian diag(label_degrees) − Y P Yᵀ of the
            weights from labels.
            """
            product = edge_factor * (edge_laplacian @ columns)
            # Without labels, there is no second part.
            if classes:
                product += label_degrees[:, None] * columns - Y @ (P @ (Y.T @ columns))
            return cast(np.ndarray, product)

        unit = self.scaling == "unit"
        return largest_eigenvalue_projection(state.kept, multiply_by_laplacian, self.n_components, unit)


def _class_indicators(codes: np.ndarray) -> sp.csr_array:
    """Return the matrix (rows, classes) with 1 at each row's class, if its code is not −1."""
    labelled = np.flatnonzero(codes >= 0)
    shape = (len(codes), int(codes.max(initial=-1)) + 1)
    return sp.csr_array((np.ones(len(labelled)), (labelled, codes[labelled])), shape=shape)
