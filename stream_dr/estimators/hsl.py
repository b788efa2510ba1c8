"""HSL: hypergraph spectral learning by the two-stage method."""

from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp

from stream_dr.estimators.fitting.moments import Moments
from stream_dr.estimators.fitting.parameter_checks import NotOffered, check_choice
from stream_dr.estimators.fitting.two_stage import TwoStage
from stream_dr.feature_maps import feature_map
from stream_dr.statistics.moments.label_sets import most_sets


class HSL(TwoStage):
    """Hypergraph spectral learning: rows are vertices, labels are hyperedges, L a normalised Laplacian of that graph.

    Solves `(Cxx + γI)⁻¹ XH Hᵀ Xᵀ w = λ w` with HHᵀ = I − L, X centred [2S §2; mathematics §3]. `laplacian`:

    - "zhou": XH = Cxy' diag(n_e^−1/2), where Cxy' is of row i's targets divided by √(its number of labels);
    - "clique": XH = Cxy', divided by √(Σ_{e∋i} n_e);
    - "star": XH = Cxy' diag(1/n_e), divided by √(Σ_{e∋i} 1/n_e).

    Self-loops (the diagonal of I − L) are kept and count in the degrees. n_e, the rows that have label e, is final only
    at the end; so clique and star keep the sum of rows per distinct label set, and get degrees when solving: exact in
    one pass, whatever the order of rows. They keep at most 20,000 sets, and 1 GiB of dense rows' sums; a batch that
    would exceed that is refused, by a `Directory` before it is in the log. At most one component per label; eigenvalues
    lie in [0, 1]. Rows with an empty list of labels count in the mean and in Cxx only.

    Targets: one or several labels a row. State: O(d·(k + 2)), k labels; for clique and star a sum of rows per distinct label
    set, + d² with exact scatter. Learning a row costs O(its entries × its labels), + O(d²) with exact scatter; solving
    O(d³ + d k²), with the diagonal O(d k²), which `refine` makes exact. Merges and unlearns.

    Parameters
    ----------
    laplacian : {"zhou", "clique", "star"}, default "zhou"
        Which normalised Laplacian; see above.

    >>> from stream_dr import HSL
    >>> hsl = HSL(laplacian="star").fit([[0.0, 1.0], [1.0, 1.0], [5.0, 0.0]], [["a"], ["a", "b"], ["b"]])
    >>> hsl.rank_
    2
    """

    limit: ClassVar[str] = "there are at most as many as labels"
    target_kinds: ClassVar[tuple[str, ...]] = ("class", "multilabel")
    fixed: ClassVar[tuple[str, ...]] = (*TwoStage.fixed, "laplacian")
    predict = score = NotOffered(
        "HSL does not predict, it projects: put it before a classifier of label sets, such as scikit-learn's "
        "KNeighborsClassifier, in a pipeline, or use OPLS or CCA, which predict them."
    )

    def __init__(
        self,
        laplacian: Literal["zhou", "clique", "star"] = "zhou",
        n_components: int | None = None,
        *,
        gamma: float = 0.0,
        shrinkage: float | None = None,
        scaling: Literal["unit", "source"] = "unit",
        scatter: Literal["auto", "exact", "diagonal"] = "auto",
        standardize: bool = False,
        decay: float = 1.0,
        min_class_rows: int = 2,
        target: Literal["auto", "class", "multilabel", "continuous"] = "auto",
        feature_map: dict[str, Any] | None = None,
        random_state: int | None = None,
    ) -> None:
        super().__init__(
            n_components, gamma=gamma, shrinkage=shrinkage, scaling=scaling, scatter=scatter, standardize=standardize,
            decay=decay, min_class_rows=min_class_rows, target=target, feature_map=feature_map,
            random_state=random_state,
        )  # fmt: skip
        self.laplacian = laplacian

    def check_parameters(self) -> None:
        """Raise InvalidParameter when a parameter is outside its range."""
        super().check_parameters()
        check_choice("laplacian", self.laplacian, ("zhou", "clique", "star"))

    def target_encoding(self) -> Any:
        """Zhou's weights need only the row; the others come from the label sets."""
        return "zhou" if self.laplacian == "zhou" else "indicator"

    def keeps_label_sets(self) -> bool:
        """Whether the sums of each distinct label set are remembered."""
        return self.laplacian != "zhou"

    def most_label_sets(self, n_features: int, sparse: bool) -> int | None:
        """Distinct label sets whose sums are kept, clique and star: 20,000, or as many as 1 GiB holds of dense rows."""
        if not self.keeps_label_sets():
            return None
        if self.feature_map is None:
            return most_sets(n_features, not sparse)
        made = feature_map(self.feature_map)
        return most_sets(made.out_features(n_features), not made.sparse)

    def right(self, moments: Moments, state: Any) -> tuple[np.ndarray, float]:
        """XH of the hypergraph; see the class."""
        k = len(moments.label_weights)
        if self.laplacian == "zhou" or moments.kind == "class" or k == 0:  # all three are one, of one label a row
            return moments.cross / np.sqrt(moments.label_weights), k**0.5
        n_e = np.zeros(len(moments.present))
        n_e[moments.present] = moments.label_weights
        columns = edge_columns(state.label_sets.sets, n_e, self.laplacian)[:, moments.present]
        return state.label_set_cross(columns) * moments.scale[:, None], k**0.5


def edge_columns(sets: Any, n_e: np.ndarray, laplacian: str) -> sp.csr_matrix:
    """(sets, labels) what a row of each label set is multiplied by: 1/√deg, for the star times 1/n_e [mathematics §3].

    deg of a set is Σ n_e (clique) or Σ 1/n_e (star) over its labels; n_e (labels,): labels without weight count nothing.
    """
    share = np.divide(1.0, n_e, out=np.zeros_like(n_e), where=n_e > 0)
    part, edge = (n_e, (n_e > 0).astype(float)) if laplacian == "clique" else (share, share)
    sizes = np.array([len(s) for s in sets], dtype=np.int64)
    codes = np.array([code for s in sets for code in s], dtype=np.int64)
    owner = np.repeat(np.arange(len(sets)), sizes)
    degree = np.bincount(owner, weights=part[codes], minlength=len(sets))
    root = np.divide(1.0, np.sqrt(degree), out=np.zeros(len(sets)), where=degree > 0)
    return sp.csr_matrix((edge[codes] * root[owner], (owner, codes)), shape=(len(sets), len(n_e)))
