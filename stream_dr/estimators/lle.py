"""LLE: locally linear embedding of a sample; other rows are placed as means of their nearest sampled ones.

Every row is written as a barycentric mean of its neighbours, and places are found in which the same means hold [GLPLS
eq. 2.31-2.34]; see solve/lle.py.

Cost: learning as a reservoir, O(1) a row and O(entries) for the few kept; memory 8 · reservoir · features bytes
dense; solving O(reservoir³); transform O(reservoir · features) a row. Merges: yes, by a
hypergeometric draw. Unlearns: no.

Why this way: scikit-learn's LocallyLinearEmbedding on the sampled rows, to the last choice (k others, the ridge on
the local Gram matrix, unit-length places), so that one can be checked against the other.
"""

from dataclasses import KW_ONLY, dataclass

from stream_dr.estimators.fitting.parameter_checks import check_number
from stream_dr.estimators.fitting.reservoir_method import Embedding, check_weighted
from stream_dr.solve.lle import Barycentre, locally_linear
from stream_dr.statistics.reservoir import Reservoir


@dataclass(eq=False, repr=False)
class LLE(Embedding):
    """Locally linear embedding of a uniform sample of the rows.

    Time a row O(1) to learn, O((reservoir + k²) · features) to transform; memory 8 · reservoir · features bytes.
    Merges; does not unlearn. Left out: label-aware neighbours (a new row has no label), the Hessian and modified
    variants.

    Parameters
    ----------
    n_neighbors : int ≥ 1, default 10
        Neighbours k, others than the row itself, at most 500 (or as many as `reservoir`).
    reg : float ≥ 0, default 0.001
        Share of each local Gram matrix' trace that is added to its diagonal.
    scaling : {"unit", "source"}, default "unit"
        "unit": the sampled rows have variance 1 along every component; "source": places of unit length, as
        scikit-learn's.

    Attributes
    ----------
    eigenvalues_ : ndarray (components,), float64
        Of (I − W)ᵀ(I − W), ascending.

    >>> import numpy as np
    >>> from stream_dr import LLE
    >>> LLE(n_components=1, n_neighbors=3).fit_transform(np.arange(12.0)[:, None]).shape
    (12, 1)
    """

    _: KW_ONLY
    reg: float = 1e-3

    def check_parameters(self) -> None:
        """Raise InvalidParameter when a parameter is outside its range."""
        super().check_parameters()
        check_weighted(self.n_neighbors, self.reservoir)
        check_number("reg", self.reg, 0.0)

    def fitted(self, state: Reservoir) -> Barycentre:
        """Places of the sampled rows, and the rule for others."""
        return locally_linear(state.kept, self.n_components, self.n_neighbors, self.reg, self.scaling == "unit")
