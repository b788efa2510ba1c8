"""HSL (hypergraph spectral learning) by the two-stage method."""

from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import numpy as np
import scipy.sparse as sp

from stream_dr.errors import InvalidParameter
from stream_dr.estimators.fitting.moments import Moments
from stream_dr.estimators.fitting.parameters import HiddenAttribute, check_choice
from stream_dr.estimators.fitting.state_error import HeldOutError
from stream_dr.estimators.fitting.two_stage_method import RightHandSide, TwoStage
from stream_dr.statistics.moments.encoding import Encoding
from stream_dr.statistics.moments.label_sets import LabelSets
from stream_dr.statistics.moments.state import MomentState


# A dataclass has the fields of its last base first. So `laplacian` is the first parameter of HSL.
@dataclass(eq=False, repr=False)
class _LaplacianParameter:
    laplacian: Literal["zhou", "clique", "star"] = "zhou"


@dataclass(eq=False, repr=False)
class HSL(TwoStage, _LaplacianParameter):
    """Find directions that keep rows with common labels together.

    Hypergraph spectral learning. The rows are the vertices of a hypergraph. Each label is a
    hyperedge, which joins all rows with this label. The components are computed from a normalised
    Laplacian of the hypergraph.

    >>> from stream_dr import HSL
    >>> hsl = HSL(laplacian="star").fit([[0.0, 1.0], [1.0, 1.0], [5.0, 0.0]], [["a"], ["a", "b"], ["b"]])
    >>> hsl.rank_
    2

    Targets are one or several labels a row. There are at most as many components as labels. States
    can be merged, and rows can be unlearned. HSL does not predict labels. Use HSL in a pipeline
    before a classifier that predicts several labels a row, or use OPLS or CCA instead.

    Parameters
    ----------
    laplacian : {"zhou", "clique", "star"}, default "zhou"
        Normalised Laplacian of the hypergraph, see Notes.

    Notes
    -----
    Solves `(Cxx + γI)⁻¹ XH (XH)ᵀ w = λ w` with H Hᵀ = I − L [2S §2; mathematics §3]. The columns
    of X (features, rows) are the centred rows, Cxx (features, features) is their scatter, and γ is
    the ridge `gamma`. L (rows, rows) is the Laplacian, and I the identity. Eigenvalues λ are from
    0 to 1.

    H (rows, labels) is computed from the rows' label indicators. Let n_e be the number of rows
    with label e. The indicators of each row are divided by a number, which depends on `laplacian`.
    Then the column of each label e is multiplied by a factor:

    - "zhou": the divisor is √(number of the row's labels), and the factor is n_e^(−1/2).
    - "clique": the divisor is √(Σ n_e) over the row's labels, and the factor is 1.
    - "star": the divisor is √(Σ 1/n_e) over the row's labels, and the factor is 1/n_e.

    For example, let 4 rows have the label a, and 1 row the labels a and b. So n_a = 5 and n_b = 1.
    The row with both labels has the indicators (1, 1). Its row of H is (1/√10, 1/√2) for "zhou",
    (1/√6, 1/√6) for "clique", and (1/5, 1) / √(6/5) for "star".

    The degree of a vertex includes an edge from the row to itself, so the diagonal of I − L is not
    0. Rows with an empty list of labels influence only the mean and Cxx.

    n_e is known only at the end of the stream. So "clique" and "star" store one sum of rows for
    each distinct set of labels, and compute the divisors when solving. The result is exact in one
    pass, for any order of the rows. At most 20,000 distinct sets are stored. A batch that exceeds
    this number raises LimitExceeded, and in a `Directory` the model fails at this batch.

    The state has O(d·(k + 2)) numbers for d features and k labels. "clique" and "star" add d
    numbers for each distinct set of labels. Learning a row costs O(its entries × its labels). The
    exact scatter (the whole matrix Cxx, not only its diagonal) adds d² numbers to the state and
    O(d²) to learning a row. Solving costs O(d³ + d k²), or O(d k²) if only the diagonal is stored.
    The solution is then approximate, and `refine` makes it exact.
    """

    limit: ClassVar[str] = "there are at most as many as labels"
    target_kinds: ClassVar[tuple[str, ...]] = ("class", "multilabel")
    fixed: ClassVar[tuple[str, ...]] = (*TwoStage.fixed, "laplacian")
    predict = score = HiddenAttribute(
        "HSL does not predict, it projects: put it before a classifier of label sets, such as scikit-learn's "
        "KNeighborsClassifier, in a pipeline, or use OPLS or CCA, which predict them."
    )

    def check_parameters(self) -> None:
        """Raise InvalidParameter when a parameter is outside its range."""
        super().check_parameters()
        check_choice("laplacian", self.laplacian, ("zhou", "clique", "star"))

    def target_encoding(self) -> Encoding:
        """Return the encoding of labels as numeric columns.

        "indicator" is one column of 0 and 1 for each label. "zhou" also divides each row's
        indicators by the square root of the row's number of labels.
        """
        if self.laplacian == "zhou":
            return "zhou"
        return "indicator"

    def keeps_label_sets(self) -> bool:
        """True if the state sums rows separately for each label set.

        The label set of a row is the set of all its labels.
        """
        return self.laplacian != "zhou"

    def held_out_error(self, other: Self) -> HeldOutError:
        """Return this model's error on rows that another model learned.

        The error is the sum of squared errors of the labels, predicted by linear regression on the
        components. It is computed from the two states, so no row is read again.

        Raises InvalidParameter unless laplacian="zhou". The other Laplacians change a row's targets
        with the labels of all other rows, so two models would have different targets. Also raises
        the errors of `LDA.held_out_error`.

        other: another HSL, which has learned the held-out rows.
        """
        if self.laplacian != "zhou":
            raise InvalidParameter(
                f"laplacian={self.laplacian!r}; it must be 'zhou'. Targets of the others depend on all rows together."
            )
        return super().held_out_error(other)

    def loss_factors(self, moments: Moments) -> np.ndarray:
        """Return the matrix F (labels, labels) of the loss.

        In cross-validation, the loss is the sum of |Fᵀ e|² over the rows. e (labels,) are a row's
        residuals: the label indicators minus their predictions. F is diagonal, with the entry 1/√n
        for a label whose rows have the weight n.
        """
        return np.diag(1.0 / np.sqrt(moments.label_weights))

    def right_hand_side(self, moments: Moments, state: MomentState) -> RightHandSide:
        """Return XH (features, labels) and the Frobenius norm of H.

        As in the paper, the columns of X (features, rows) are the centred rows. H (rows, labels)
        has a factor above 0 if a row has a label, and 0 if not. The factors depend on the parameter
        `laplacian` ("zhou", "clique" or "star"). The norm decides which part of XH is only rounding
        error.
        """
        # Each of the k columns of H has at most length 1, so √k bounds the norm of H.
        k = len(moments.label_weights)
        norm = k**0.5
        # With "zhou", XH follows from `cross` (features, labels), the centred rows' sum for each
        # label. If each row has one label (kind "class"), "clique" and "star" are equal to "zhou".
        if self.laplacian == "zhou" or moments.kind == "class" or k == 0:
            return RightHandSide(moments.cross / np.sqrt(moments.label_weights), norm)

        # With "clique" and "star", the state stores a sum of rows for each set of labels.
        assert isinstance(state.label_sets, LabelSets)
        # n_e is the weight of the rows with each label. `present` marks the labels that have rows.
        n_e = np.zeros(len(moments.present))
        n_e[moments.present] = moments.label_weights
        factors = label_set_factors(state.label_sets.sets, n_e, self.laplacian)
        set_sums = state.weighted_set_sums(factors[:, moments.present])
        # Multiply the features by `scale`. In `cross`, this is already done.
        return RightHandSide(set_sums * moments.scale[:, None], norm)


def label_set_factors(
    label_sets: tuple[tuple[int, ...], ...], label_weights: np.ndarray, laplacian: Literal["clique", "star"]
) -> sp.csr_matrix:
    """Return the matrix (sets, labels) that turns set sums into label sums.

    HSL (hypergraph spectral learning) stores the sum (features,) of the rows of each distinct set
    of labels. The product of these sums (features, sets) and the result has a weighted sum of rows
    for each label. Let n_l be the weight of all rows with the label l. The factor of a set for its
    label l is [mathematics §3]:

    * 1/√g with "clique", where g is the sum of n_k over all labels k of the set,
    * 1/(n_l √g) with "star", where g is the sum of 1/n_k over all labels k of the set.

    The factor is 0 for labels outside the set. For example, the sets ((0,), (0, 1)) with the label
    weights (5, 1) have the factors ((1/√5, 0), (1/√6, 1/√6)) with "clique".

    label_sets: codes of each set's labels.
    label_weights: (labels,), weight n_l of the rows with each label l. Labels of weight 0 have the
        factor 0.
    laplacian: "clique" or "star".
    """
    # A factor is numerator / √g, and g is the sum of `summands` over the labels of a set. Both
    # arrays have an entry for each label.
    if laplacian == "clique":
        summands = label_weights
        numerators = (label_weights > 0).astype(float)
    else:
        summands = np.divide(1.0, label_weights, out=np.zeros_like(label_weights), where=label_weights > 0)
        numerators = summands

    # `codes` has the labels of all sets, one after another, and `set_of_code` the set of each. The
    # sets of the example have the codes (0, 0, 1) and the sets (0, 1, 1).
    sizes = np.array([len(s) for s in label_sets], dtype=np.int64)
    codes = np.array([code for s in label_sets for code in s], dtype=np.int64)
    set_of_code = np.repeat(np.arange(len(label_sets)), sizes)
    g = np.bincount(set_of_code, weights=summands[codes], minlength=len(label_sets))

    # A set whose labels have no weight has g = 0, and its factors are 0.
    inverse_roots = np.divide(1.0, np.sqrt(g), out=np.zeros(len(label_sets)), where=g > 0)
    factors = numerators[codes] * inverse_roots[set_of_code]
    shape = (len(label_sets), len(label_weights))
    return sp.csr_matrix((factors, (set_of_code, codes)), shape=shape)
