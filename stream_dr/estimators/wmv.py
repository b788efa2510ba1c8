"""WMV (weighted maximum variance), with weights of class pairs."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from stream_dr.batch.targets import Label
from stream_dr.errors import InvalidParameter
from stream_dr.estimators.fitting.closed_form import Directions
from stream_dr.estimators.fitting.moments import Moments
from stream_dr.estimators.fitting.parameters import check_choice, check_number_in_range
from stream_dr.estimators.fitting.refining import Refinable
from stream_dr.estimators.fitting.stream_learner import NeedsRefine
from stream_dr.feature_maps.feature_map import is_finite_number
from stream_dr.solve.discriminant import positive_scatter_sum_eigenpairs
from stream_dr.solve.spectral import EPS, nonzero_indefinite_eigenpairs
from stream_dr.statistics.moments.class_scatter import ClassScatter
from stream_dr.statistics.moments.state import MomentState


@dataclass(eq=False, repr=False)
class WMV(Refinable):
    """Find directions that draw classes together or drive them apart.

    Weighted maximum variance. Every pair of classes has a weight. If the weight is negative, the
    projected rows of the two classes are drawn together. If the weight is positive, they are
    driven apart. PCA and MMC are special cases.

    >>> from stream_dr import WMV
    >>> wmv = WMV(n_components=1).fit([[0.0, 1.0], [0.0, 2.0], [4.0, 1.0], [4.0, 2.0]], ["a", "a", "b", "b"])
    >>> wmv.components_.round(3).tolist()
    [[1.0, 0.0]]

    Targets are one label a row. n_components=None takes the components of positive eigenvalue.
    States can be merged, and rows can be unlearned.

    Parameters
    ----------
    alpha : float, default -1.0
        Weight of two rows of the same class. Must be below 0 with pairs="equal".
    beta : float > 0, default 1.0
        Weight of two rows of different classes.
    pairs : {"equal", "share"}, default "equal"
        How alpha and beta become weights of pairs of rows. With "equal", the weight is alpha for
        two rows of the same class, and beta for two rows of different classes. With "share", each
        pair has the weight beta / N, and a pair of the same class has alpha / n more. N is the
        number of all rows, and n the number of rows of the class.
    pair_weights : list of (label, label, float) or None, default None
        Weight of a pair of rows, one row of each of the two labels. The labels may be in any
        order. These weights replace the weights computed from alpha, beta and pairs.
    unlabelled : {"skip", "use"}, default "skip"
        What to do with rows without a label. "skip" ignores these rows. "use" learns these rows.
        Then a pair of rows has the weight of two rows of different classes, if one of the two rows
        has no label.

    Notes
    -----
    A direction w maximises ½ Σ_ij C_ij (wᵀ(x_i − x_j))² [WMV; mathematics §2]. The sum is over all
    pairs of rows x_i and x_j. C_ij is the weight of the rows' classes times the rows' own weights.
    Components are the orthonormal eigenvectors of the matrix of this sum, largest eigenvalue
    first. The matrix is computed from sums over classes, without reading pairs of rows.

    Special cases:

    - pairs="equal" is the two-parameter form of the source.
    - pairs="share" with beta=1 is PCA for alpha=0, and `MMC` for alpha=−2. More generally, it is
      MMC(alpha=a) for alpha = −1 − a. The eigenvalues are N times those of these methods, for N
      rows.

    Above 4,096 features only the diagonal of the rows' scatter may be stored (see `scatter`).
    `solution_` is then "diagonal". The method assumes that all classes have the same diagonal
    scatter. If alpha is so large that the scatter within classes would be maximised, the components
    would only be the features of largest scatter. So `transform` raises NeedsRefine. Call `refine`
    for an exact solution.

    The state has a scatter matrix of all rows and one for each class, 8·(c + 1)·d² bytes for c
    classes and d features (170 MB for 20 classes and 1,000 features). With pairs="share" and
    unlabelled="skip" only the matrix of all rows is stored, or above 4,096 features its diagonal.
    Learning a row costs O(d²), or O(its entries) if only the diagonal is stored. Solving costs
    O(d³ + c d²).
    """

    fixed: ClassVar[tuple[str, ...]] = (*Refinable.fixed, "unlabelled")
    target_kinds: ClassVar[tuple[str, ...]] = ("class",)

    alpha: float = -1.0
    beta: float = 1.0
    _: KW_ONLY
    pairs: Literal["equal", "share"] = "equal"
    pair_weights: Sequence[Sequence[Any]] | None = None
    unlabelled: Literal["skip", "use"] = "skip"

    @property
    def eigenvalue_growth(self) -> int:  # type: ignore[override]
        """Exponent of the eigenvalues' growth with the number of rows.

        Eigenvalues are sums over pairs of rows, which grow as N^g for N rows. To compare eigenvalues
        of different numbers of rows, callers divide them by N^g.

        - pairs="equal": g = 2, because there are about N² pairs, and their weights do not change.
        - pairs="share": g = 1, because the weights of pairs are divided by numbers of rows. (Weights
          given as `pair_weights` are not divided. This is ignored here.)
        """
        if self.pairs == "share":
            return 1
        return 2

    def check_parameters(self) -> None:
        """Raise InvalidParameter when a parameter is outside its range."""
        super().check_parameters()
        check_choice("pairs", self.pairs, ("equal", "share"))
        check_choice("unlabelled", self.unlabelled, ("skip", "use"))
        check_number_in_range("alpha", self.alpha)
        check_number_in_range("beta", self.beta, low=0.0, exclude_low=True)
        if self.pairs == "equal" and self.alpha >= 0.0:
            raise InvalidParameter(f"alpha={self.alpha}; it must be below 0 (rows of one class are drawn together).")
        pairs: Any = ()
        if self.pair_weights is not None:
            pairs = self.pair_weights
        if not isinstance(pairs, list | tuple) or not all(map(_is_pair_weight, pairs)):
            raise InvalidParameter(f"pair_weights={pairs!r}; it must be a list of (label, label, number).")

    def keeps_scatter_per_class(self) -> bool:
        """True if the state stores each class's scatter matrix.

        The components are eigenvectors of a weighted sum of the classes' scatter matrices. The
        state stores each matrix if the matrices may have different weights in this sum, or if
        unlabelled="use".
        """
        return not self._has_equal_class_factors() or self.unlabelled == "use"

    def _has_equal_class_factors(self) -> bool:
        """True if WMV's matrix multiplies every class's scatter alike."""
        # The components are eigenvectors of this matrix, a weighted sum of the classes' scatters.
        return self.pairs == "share" and not self.pair_weights

    def class_pair_weights(self, moments: Moments) -> np.ndarray:
        """Return the weights of pairs of rows, by their two classes.

        WMV maximises a sum over pairs of rows, each pair's squared distance times its weight. Entry
        (a, b) of the result (classes, classes) is the weight of each pair of one row of class a and
        one row of class b. The result is symmetric.

        moments: centred sums of the rows, with the weight of each class. If rows without a label
            were learned, they are the last class.
        """
        # Fill the matrix C with the weights of pairs of rows that follow from alpha and beta. With
        # pairs="equal", pairs of one class have the weight alpha, and other pairs the weight beta.
        # With pairs="share", all pairs have the weight beta / N, where N is the weight of all
        # rows. For pairs of one class, alpha / n is added, where n is the weight of the rows of
        # the class.
        n = moments.label_weights
        different = self.beta if self.pairs == "equal" else self.beta / n.sum()
        C = np.full((len(n), len(n)), float(different))
        # `labels` lacks the class of rows without a label. They keep the weight `different`.
        classes = np.arange(len(moments.labels))
        C[classes, classes] = self.alpha if self.pairs == "equal" else different + self.alpha / n[classes]

        # Replace the weights that `pair_weights` sets. Labels that are not classes are ignored.
        codes: dict[Label, int] = {label: code for code, label in enumerate(moments.labels)}
        for a, b, weight in self.pair_weights or ():
            if a in codes and b in codes:
                C[codes[a], codes[b]] = C[codes[b], codes[a]] = weight
        return C

    def label_weight_factors(self, moments: Moments) -> Mapping[Label | None, float]:
        """Return the factor of each class's rows, by label.

        `refine`, which reads the rows again, multiplies the rows' weights by these factors. The key
        None is for rows without a label, if these are learned. Waiting labels, which have fewer
        than `min_class_rows` rows, are not classes yet. If all classes have the same factor,
        waiting labels have it, too. If not, they have no factor, and `refine` leaves out their
        rows.
        """
        # The factor of a row is the sum of the weights of its pairs.
        moments = self._with_unlabelled_class(moments)
        factors = (self.class_pair_weights(moments) @ moments.label_weights).tolist()
        by_label: dict[Label | None, float] = dict(zip(moments.labels, factors, strict=False))

        # If rows without a label are one more class, it is the last one.
        if len(factors) > len(moments.labels):
            by_label[None] = factors[-1]
        # Labels wait only if there are other labels that are classes.
        if moments.waiting and self._has_equal_class_factors():
            by_label |= dict.fromkeys(moments.waiting, factors[0])
        return by_label

    def directions(self, moments: Moments, state: MomentState) -> Directions:
        """Return the components as columns, and their eigenvalues.

        The largest eigenvalue comes first. If n_components is None, only components of positive
        eigenvalue are returned.

        moments: centred sums of the rows and targets, from which the components are computed.
        """
        # With unlabelled="use", rows without a label are one more class, the last one.
        # Without any class, there are no pairs.
        m = self._with_unlabelled_class(moments)
        if not len(m.label_weights):
            return np.zeros((len(m.mean), 0)), np.zeros(0)

        # `factors` (classes,) is the sum of the weights of all pairs of one row, by the row's
        # class. The scatter of a class is multiplied by the factor of its rows.
        factors = self.class_pair_weights(m) @ m.label_weights
        if m.scatter is None:
            return self._directions_from_diagonal(m, factors)
        # If the state has no scatter of each class, all classes have the same factor.
        if not isinstance(state.class_scatter, ClassScatter):
            return self.weighted_directions(moments._replace(scatter=factors[0] * m.scatter), state)

        # `total` will be the sum of the classes' scatters times their factors. The scatter of rows
        # without a label is the scatter of all rows minus the scatters of all labels.
        classes = len(m.labels)
        unlabelled = 0.0
        if len(factors) > classes:
            unlabelled = factors[-1]
        total = unlabelled * m.scatter

        # The stored scatter of a label is about the label's mean, and must be about the mean of all
        # rows. Add the difference, a rank-1 term for each class. Columns of `cross` are class sums.
        total += (m.cross * ((factors - unlabelled) / m.label_weights)) @ m.cross.T

        # Make an array of the factors of all learned labels, also of labels with too few rows.
        # A label with too few rows has the factor 0, unless all classes have the same factor.
        by_label = np.zeros(len(m.present))
        if self._has_equal_class_factors() and classes:
            by_label[:] = factors[0]
        by_label[m.present] = factors[:classes]
        # The state stores sums divided by `state.scale`. Moments are those of columns multiplied by
        # `m.scale`, for example by standardising.
        for factor, scatter in zip(by_label - unlabelled, state.class_scatter.scatter, strict=True):
            total += factor * state.scale * scatter * m.scale[:, None] * m.scale
        return self.weighted_directions(moments._replace(scatter=total), state)

    def weighted_directions(self, moments: Moments, state: MomentState) -> Directions:
        """Return the components as columns, and their eigenvalues.

        The components are eigenvectors of S − Cxy P Cxyᵀ, largest eigenvalue first. They maximise
        the sum of weighted squared distances between projected rows.

        - P (classes, classes) has the weights of pairs of rows, by their classes.
        - A column of Cxy (features, classes) is the sum of the centred rows of a class.
        - S = Σ f_c S_c is a sum over the classes c. S_c (features, features) is the scatter of the
          rows of class c about the mean of all rows. f_c is the sum of the weights of all pairs of
          one row of class c.

        moments: centred sums of the rows, with S as `moments.scatter`.
        """
        moments = self._with_unlabelled_class(moments)
        P = self.class_pair_weights(moments)
        S = moments.scatter
        # `floor` is the size up to which an eigenvalue is rounding error. The errors of S_c are
        # multiplied by f_c, which is at most largest · N for the weight N of all rows.
        largest = float(np.abs(P).max(initial=0.0))
        floor = largest * moments.weight * moments.rounding.eigenvalue_floor(moments.diagonal)
        values, vectors = nonzero_indefinite_eigenpairs(S - moments.cross @ P @ moments.cross.T, floor)
        # Without n_components, return only components of positive eigenvalue, which come first.
        p = len(values)
        if self.n_components is None:
            p = int(np.count_nonzero(values > 0))
        return vectors[:, :p], values[:p]

    def _with_unlabelled_class(self, m: Moments) -> Moments:
        """Return moments in which the rows without a label are one more class."""
        # This class is the last one. If such rows were not learned, `m` is returned unchanged.
        # The weight of unlabelled rows is a difference, in which up to 1e-12 is rounding error.
        weight = m.weight - m.label_weights.sum()
        if self.unlabelled == "skip" or not weight > 1e-12 * m.weight:
            return m
        # `cross` has the sum of the centred rows of each class. All of them add up to 0.
        cross = np.column_stack([m.cross, -m.cross.sum(axis=1)])
        return m._replace(label_weights=np.append(m.label_weights, weight), cross=cross)

    def _directions_from_diagonal(self, moments: Moments, factors: np.ndarray) -> Directions:
        """Return components and eigenvalues, knowing only the diagonal of the scatter.

        The components are eigenvectors of between + share · within (features, features):

        - `within` is diagonal, the scatter of the rows about their class means. `share` is the mean
          of `factors` over the rows.
        - `between` is Cxy C Cxyᵀ. Column j of Cxy (features, classes) is the sum of the centred rows
          of class j. C (classes, classes) is diag(factors / n) − P. n are the weights of the
          classes, and P are the weights of pairs of rows by their two classes.

        Raises NeedsRefine if share > 0, because the components would be the single features of
        largest scatter, or if `between` has a negative eigenvalue.

        factors: (classes,), sum of the weights of all pairs of one row, by the row's class.
        """
        # `share` is this mean if the scatter about the class mean is the same in all classes.
        n = moments.label_weights
        within = np.maximum(moments.diagonal - (moments.cross**2 / n).sum(axis=1), 0.0)
        share = float(factors @ n) / moments.weight

        C = np.diag(factors / n) - self.class_pair_weights(moments)
        vectors, between_values = _cross_eigenpairs(moments, C)
        # The solver below needs a root G of `between`, so eigenvalues may be negative only by
        # rounding errors.
        rounding = len(between_values) * EPS * np.abs(between_values).max(initial=0.0)
        if share > 0.0 or (between_values < -rounding).any():
            raise NeedsRefine(
                "only the diagonal of Cxx is stored (it is past 4,096 features), and where the scatter of "
                "the classes themselves is to be large its axes would be single features. Call refine(source), give "
                "scatter='exact' (dense rows), or choose a smaller alpha."
            )

        # Find the eigenvectors of G Gᵀ + share · within, where G Gᵀ is `between` and share ≤ 0.
        # With T = G Gᵀ − share · within, of which only the diagonal is used, the sum is 2 G Gᵀ − T.
        G = vectors * np.sqrt(np.maximum(between_values, 0.0))
        diagonal = np.einsum("ij,ij->i", G, G) - share * within
        loadings, values = positive_scatter_sum_eigenpairs(
            G, between_weight=2.0, total_scatter_diagonal=diagonal, total_scatter_weight=-1.0
        )
        return loadings, values


def _is_pair_weight(pair: object) -> bool:
    """True if an entry of `pair_weights` is (label, label, number)."""
    return isinstance(pair, list | tuple) and len(pair) == 3 and is_finite_number(pair[2])


def _cross_eigenpairs(moments: Moments, C: np.ndarray) -> Directions:
    """Return eigenvectors and eigenvalues of Cxy C Cxyᵀ, without forming this matrix."""
    # `inner` (r, classes) is Cxy in a basis of its range.
    Cxy = moments.cross
    basis, _ = moments.significant_left_singular_pairs(Cxy, Cxy.shape[1] ** 0.5)
    inner = basis.T @ Cxy
    values, rotation = np.linalg.eigh(inner @ C @ inner.T)
    return basis @ rotation, values
