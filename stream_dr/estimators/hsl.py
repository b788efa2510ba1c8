"""HSL (hypergraph spectral learning) by the two-stage method."""

from typing import ClassVar, Literal

import numpy as np
import scipy.sparse as sp

from stream_dr.aliases import JsonDict
from stream_dr.estimators.fitting.moments import Moments
from stream_dr.estimators.fitting.parameter_checks import NotOffered, check_choice
from stream_dr.estimators.fitting.two_stage_method import TwoStage
from stream_dr.statistics.moments.accumulator import MomentState
from stream_dr.statistics.moments.encoding import Encoding
from stream_dr.statistics.moments.label_sets import LabelSets


class HSL(TwoStage):
    """Find directions that keep rows with common labels together.

    Hypergraph spectral learning. The rows are the vertices of a hypergraph, and each label is a
    hyperedge that joins its rows. The method solves with a normalised Laplacian L of this
    hypergraph.

    >>> from stream_dr import HSL
    >>> hsl = HSL(laplacian="star").fit([[0.0, 1.0], [1.0, 1.0], [5.0, 0.0]], [["a"], ["a", "b"], ["b"]])
    >>> hsl.rank_
    2

    Targets are one or several labels a row. There is at most one component per label. Merges and
    unlearns. HSL does not predict. Put it before a classifier of label sets, or use OPLS or CCA.

    Parameters
    ----------
    laplacian : {"zhou", "clique", "star"}, default "zhou"
        Normalised Laplacian, see Notes.

    Notes
    -----
    Solves `(Cxx + γI)⁻¹ XH Hᵀ Xᵀ w = λ w` with HHᵀ = I − L [2S §2; mathematics §3]. X are the
    centred rows, Cxx is their scatter and γ is the ridge `gamma`. Eigenvalues lie in [0, 1]. Let
    n_e be the number of rows with label e. Let Cxy' be the cross-scatter of rows and label
    indicators, where the indicators of row i are divided by a number. XH depends on `laplacian`:

    - "zhou": XH = Cxy' diag(n_e^−1/2). The divisor is √(number of labels of row i).
    - "clique": XH = Cxy'. The divisor is √(Σ n_e) over the labels e of row i.
    - "star": XH = Cxy' diag(1/n_e). The divisor is √(Σ 1/n_e) over the labels e of row i.

    Self-loops (the diagonal of I − L) are kept and count in the degrees. Rows with an empty list
    of labels count in the mean and in Cxx only.

    n_e is known only at the end of the stream. So "clique" and "star" store the sum of the rows of
    each distinct label set, and compute the divisors when solving. The result is exact in one
    pass, whatever the order of the rows. At most 20,000 label sets are stored. A batch with more
    raises LimitExceeded, and a model of a `Directory` fails at that event.

    State: O(d·(k + 2)) numbers for d features and k labels. "clique" and "star" add a sum of rows
    per distinct label set, and exact scatter adds d². Learning a row costs O(its entries × its
    labels), and O(d²) with exact scatter. Solving costs O(d³ + d k²), or O(d k²) from the diagonal
    of Cxx. `refine` makes the solution from the diagonal exact.
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
        feature_map: JsonDict | None = None,
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

    def target_encoding(self) -> Encoding:
        """Return how labels become the columns of the cross-scatter.

        "zhou" divides a row's indicators by the root of its number of labels, which needs only the
        row. The other Laplacians use plain indicators and are computed from the label sets.
        """
        return "zhou" if self.laplacian == "zhou" else "indicator"

    def keeps_label_sets(self) -> bool:
        """True if the state stores the sum of the rows of each distinct label set."""
        return self.laplacian != "zhou"

    def right_hand_side(self, moments: Moments, state: MomentState) -> tuple[np.ndarray, float]:
        """Return XH (features, labels) and the size √(tr HᵀH) of the factor H.

        XH is defined in the class's Notes. The size decides which part of XH is only rounding
        error.
        """
        k = len(moments.label_weights)
        # For one label a row all three Laplacians are the same.
        if self.laplacian == "zhou" or moments.kind == "class" or k == 0:
            return moments.cross / np.sqrt(moments.label_weights), k**0.5
        n_e = np.zeros(len(moments.present))
        n_e[moments.present] = moments.label_weights
        assert isinstance(state.label_sets, LabelSets)
        columns = edge_columns(state.label_sets.sets, n_e, self.laplacian)[:, moments.present]
        return state.label_set_cross(columns) * moments.scale[:, None], k**0.5


def edge_columns(sets: tuple[tuple[int, ...], ...], n_e: np.ndarray, laplacian: str) -> sp.csr_matrix:
    """Return the factors (sets, labels) of the rows of each label set.

    The factor of a set for each of its labels e is 1/√deg with "clique", and 1/(n_e √deg) with
    "star" [mathematics §3]. deg of a set is Σ n_e with "clique" and Σ 1/n_e with "star", summed
    over the labels of the set. Labels without weight are left out.

    sets: codes of the labels of each set.
    n_e: (labels,) weight of the rows of each label.
    """
    share = np.divide(1.0, n_e, out=np.zeros_like(n_e), where=n_e > 0)
    part, edge = (n_e, (n_e > 0).astype(float)) if laplacian == "clique" else (share, share)
    sizes = np.array([len(s) for s in sets], dtype=np.int64)
    codes = np.array([code for s in sets for code in s], dtype=np.int64)
    owner = np.repeat(np.arange(len(sets)), sizes)
    degree = np.bincount(owner, weights=part[codes], minlength=len(sets))
    root = np.divide(1.0, np.sqrt(degree), out=np.zeros(len(sets)), where=degree > 0)
    return sp.csr_matrix((edge[codes] * root[owner], (owner, codes)), shape=(len(sets), len(n_e)))
