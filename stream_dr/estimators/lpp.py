"""LPP (locality preserving projections), from a sample of the rows."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from stream_dr.estimators.fitting.parameters import check_choice, check_number_in_range
from stream_dr.estimators.fitting.reservoir_method import ClassTargetsIfAny, NeighbourhoodMethod
from stream_dr.projection import Linear
from stream_dr.solve.discriminant import locality_projection, projection_without_components
from stream_dr.statistics.reservoir import Reservoir


@dataclass(eq=False, repr=False)
class LPP(NeighbourhoodMethod):
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
    label_aware : bool, default False
        Remove edges between rows of different classes. Needs y.
    gamma : float ≥ 0, default 0.0
        Ridge that is added to Xᵀ L X and to Xᵀ D X (see Notes). With gamma=0 there is no ridge,
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
    Solves Xᵀ L X w = λ Xᵀ D X w for the smallest λ [GLPLS eq. 2.35, 2.36]. X (r, features) are the
    r sampled rows, centred. (The paper does not centre the rows, so its first component may be only
    the mean of the rows.) The neighbourhood graph of the sampled rows has the weights S (r, r). D
    is the diagonal matrix of the row sums of S, and L = D − S is the graph's Laplacian. Directions
    along which the sampled rows do not vary are dropped.

    Learning a row costs O(1), or O(entries) if the row is sampled. Solving costs O(r · features ·
    min(r, features)), and transforming a row costs O(entries · components). The state of dense rows
    takes 8 · r · features bytes. r is at most the parameter `reservoir`, 2,000 by default.
    """

    target_kinds = ClassTargetsIfAny("label_aware")  # type: ignore[assignment]
    fixed: ClassVar[tuple[str, ...]] = (*NeighbourhoodMethod.fixed, "label_aware")

    _: KW_ONLY
    label_aware: bool = False
    gamma: float = 0.0

    def check_parameters(self) -> None:
        """Raise InvalidParameter when a parameter is outside its range."""
        super().check_parameters()
        check_choice("label_aware", self.label_aware, (False, True))
        check_number_in_range("gamma", self.gamma, 0.0)

    def solve_inner(self, state: Reservoir) -> Linear:
        """Return the projection that keeps neighbouring sampled rows together."""
        if not len(state.numbers):
            return projection_without_components(np.zeros(state.n_features))
        codes = state.codes if self.label_aware else None
        graph = self.sample_graph(state, codes)
        D = sp.diags_array(graph.degrees, format="csr")
        unit = self.scaling == "unit"
        return locality_projection(state.kept, D - graph.weights, D, self.n_components, self.gamma, unit)
