"""WMV (weighted maximum variance), with a weight for every pair of classes."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from stream_dr.errors import InvalidParameter
from stream_dr.estimators.fitting.closed_form import ClosedForm, Directions
from stream_dr.estimators.fitting.moments import Moments
from stream_dr.estimators.fitting.not_fitted import NeedsRefine
from stream_dr.estimators.fitting.parameter_checks import check_choice, check_number
from stream_dr.feature_maps.draws import finite_number
from stream_dr.solve.discriminant import combined_eigenpairs_diagonal
from stream_dr.solve.spectral import EPS, indefinite_eigenpairs
from stream_dr.statistics.moments.accumulator import MomentState
from stream_dr.statistics.moments.class_scatter import ClassScatter
from stream_dr.statistics.moments.encoding import Encoding
from stream_dr.targets.label_codes import Label


@dataclass(eq=False, repr=False)
class WMV(ClosedForm):
    """Find directions that spread pairs of rows by weights of their classes.

    Weighted maximum variance. Every pair of classes has a weight. Rows of a pair of negative
    weight are drawn together, and rows of a pair of positive weight are driven apart. PCA and MMC
    are special cases.

    >>> from stream_dr import WMV
    >>> wmv = WMV(n_components=1).fit([[0.0, 1.0], [0.0, 2.0], [4.0, 1.0], [4.0, 2.0]], ["a", "a", "b", "b"])
    >>> wmv.components_.round(3).tolist()
    [[1.0, 0.0]]

    Targets are one label a row. n_components=None takes the components of positive eigenvalue.
    Merges and unlearns.

    Parameters
    ----------
    alpha : float, default -1.0
        Weight α of two rows of the same class. Must be below 0 with pairs="equal".
    beta : float > 0, default 1.0
        Weight β of two rows of different classes.
    pairs : {"equal", "share"}, default "equal"
        How α and β become weights of pairs. With "equal", α and β are the weights. With "share",
        every pair weighs β/N for N rows, and two rows of class k weigh α/n_k more for n_k rows of
        the class.
    pair_weights : list of (label, label, float) or None, default None
        Weights of rows of these two classes, in either order. They replace the weights that follow
        from alpha, beta and pairs.
    unlabelled : {"skip", "use"}, default "skip"
        What to do with rows without a label. "use" learns them. Every pair with such a row then
        has the weight of rows of different classes.

    Notes
    -----
    Maximises ½ Σ_ij C_ij (wᵀ(x_i − x_j))² [WMV; mathematics §2]. C_ij is the weight of the classes
    of the rows i and j, times the rows' own weights. Components are the orthonormal eigenvectors
    of Xᵀ L X, ordered by algebraic value, where L = D − C and D are the row sums of C.

    The matrix is computed from sums over classes, Xᵀ L X = Σ_k d_k T_k − Cxy C Cxyᵀ:

    - T_k is the sum of (x − x̄)(x − x̄)ᵀ over the rows of class k.
    - C is (classes, classes), with one weight per pair of classes. d_k = Σ_l C_kl n_l.
    - Cxy is the cross-scatter of rows and class indicators.

    Special cases:

    - pairs="equal" is the two-parameter form, with α < 0 for two rows of the same class and β > 0
      for rows of different classes.
    - pairs="share" with β = 1 is PCA for α = 0, MMC for α = −2, and weighted MMC Sb − a Sw for α =
      −1 − a. The eigenvalues are N times those of these methods.

    If only the diagonal of Cxx, the scatter of the centred rows, is stored (see `scatter`),
    `solution_` is "diagonal". All classes are then taken to have the same diagonal
    scatter. If the weights say that this scatter is to be maximised, single features would be the
    components, so transform raises NeedsRefine.

    State: Cxx and c class matrices, 8·(c + 1)·d² bytes (170 MB for 20 classes at d = 1,000). With
    pairs="share" only Cxx, or above 4,096 features its diagonal. Learning a row costs O(d²), or
    O(its entries) for the diagonal. Solving costs O(d³ + c d²).
    """

    fixed: ClassVar[tuple[str, ...]] = (*ClosedForm.fixed, "unlabelled")
    target_kinds: ClassVar[tuple[str, ...]] = ("class",)
    refined_by: ClassVar[Literal["first_stage", "subspace"] | None] = "subspace"

    alpha: float = -1.0
    beta: float = 1.0
    _: KW_ONLY
    pairs: Literal["equal", "share"] = "equal"
    pair_weights: Sequence[Sequence[Any]] | None = None
    unlabelled: Literal["skip", "use"] = "skip"

    def check_parameters(self) -> None:
        """Raise InvalidParameter when a parameter is outside its range."""
        super().check_parameters()
        check_choice("pairs", self.pairs, ("equal", "share"))
        check_choice("unlabelled", self.unlabelled, ("skip", "use"))
        check_number("alpha", self.alpha)
        check_number("beta", self.beta, low=0.0, open_low=True)
        if self.pairs == "equal" and self.alpha >= 0.0:
            raise InvalidParameter(f"alpha={self.alpha}; it must be below 0 (rows of one class are drawn together).")
        pairs = self.pair_weights
        if pairs is not None and not (isinstance(pairs, list | tuple) and all(_is_pair(pair) for pair in pairs)):
            raise InvalidParameter(f"pair_weights={pairs!r}; it must be a list of (label, label, number).")

    def keeps_class_scatter(self) -> bool:
        """True if the state stores a scatter matrix for each class.

        This is needed if the rows of different classes have different factors.
        """
        return self.pairs == "equal" or bool(self.pair_weights) or self.unlabelled == "use"

    def target_encoding(self) -> Encoding:
        """Return the encoding of targets as numeric columns."""
        return "partial" if self.unlabelled == "use" else self.encoding

    def class_pairs(self, moments: Moments) -> np.ndarray:
        """Return the weights C (classes, classes) of pairs of rows, symmetric.

        moments: moments with one more class for rows without a label, if there are any.
        """
        n = moments.label_weights
        several = self.beta if self.pairs == "equal" else self.beta / n.sum()
        C = np.full((len(n), len(n)), float(several))
        classes = np.arange(len(moments.labels))
        C[classes, classes] = self.alpha if self.pairs == "equal" else several + self.alpha / n[classes]
        at: dict[Label, int] = {label: j for j, label in enumerate(moments.labels)}
        for a, b, weight in self.pair_weights or ():
            if a in at and b in at:
                C[at[a], at[b]] = C[at[b], at[a]] = weight
        return C

    def row_factors(self, moments: Moments) -> Mapping[Label | None, float] | None:
        """Return the factor d_k of the rows of each class k in the scatter.

        `refine` multiplies columns with this scatter. The key None is for rows without a label. If
        all classes have the same factor, labels with fewer than `min_class_rows` rows get this
        factor, too.
        """
        moments = self._all_classes(moments)
        factors = (self.class_pairs(moments) @ moments.label_weights).tolist()
        waiting = {} if self.keeps_class_scatter() else dict.fromkeys(moments.waiting, *factors[:1])
        return dict(zip((*moments.labels, None), factors, strict=False)) | waiting

    def directions(self, moments: Moments, state: MomentState) -> Directions:
        """Return eigenvectors and eigenvalues of Xᵀ L X (see the class's Notes).

        Only eigenvectors of positive eigenvalue are returned, unless n_components asks for more.
        """
        if not len(moments.label_weights):
            return np.zeros((len(moments.mean), 0)), np.zeros(0)

        m = self._all_classes(moments)
        factors = self.class_pairs(m) @ m.label_weights
        if m.scatter is None:
            return self._diagonal(m, factors)
        if not isinstance(state.class_scatter, ClassScatter):
            return self.directions_on(moments._replace(scatter=factors[0] * m.scatter), state)

        # If there are rows without a label, their scatter is what the classes leave of Cxx.
        unlabelled = factors[-1] if len(factors) > len(m.labels) else 0.0
        total = unlabelled * m.scatter
        total += (m.cross * ((factors - unlabelled) / m.label_weights)) @ m.cross.T
        for j, factor in zip(np.flatnonzero(m.present), factors - unlabelled, strict=False):
            total += factor * state.scale * state.class_scatter.scatter[j] * m.scale[:, None] * m.scale
        return self.directions_on(moments._replace(scatter=total), state)

    def directions_on(self, moments: Moments, state: MomentState) -> Directions:
        """Return directions if the scatter of `moments` is already Σ_k d_k T_k.

        T_k is the scatter of class k about the mean of all rows, and d_k the factor of the class.
        """
        moments = self._all_classes(moments)
        C = self.class_pairs(moments)
        scatter = moments.scatter
        floor = float(np.abs(C).max(initial=0.0)) * moments.weight * moments.rounding.floor(moments.diagonal)
        values, vectors = indefinite_eigenpairs(scatter - moments.cross @ C @ moments.cross.T, floor)
        p = len(values) if self.n_components is not None else int(np.count_nonzero(values > 0))
        return vectors[:, :p], values[:p]

    def _all_classes(self, m: Moments) -> Moments:
        """Return moments with one more class for the rows without a label, if they were learned."""
        weight = m.weight - m.label_weights.sum()
        if self.unlabelled == "skip" or not weight > 1e-12 * m.weight:
            return m
        cross = np.column_stack([m.cross, -m.cross.sum(axis=1)])
        return m._replace(label_weights=np.append(m.label_weights, weight), cross=cross)

    def _diagonal(self, moments: Moments, factors: np.ndarray) -> Directions:
        """Return directions if only the diagonal of the rows' scatter is stored.

        factors: (classes,), factor of each class in the scatter.
        """
        n = moments.label_weights
        within = np.maximum(moments.diagonal - (moments.cross**2 / n).sum(axis=1), 0.0)
        share = float(factors @ n) / moments.weight
        roots, vectors = _between_eigenpairs(moments, np.diag(factors / n) - self.class_pairs(moments))
        if share > 0.0 or (roots < -len(roots) * EPS * np.abs(roots).max(initial=0.0)).any():
            raise NeedsRefine(
                "only the diagonal of Cxx is stored (it is past 4,096 features), and where the scatter of "
                "the classes themselves is to be large its axes would be single features. Call refine(source), give "
                "scatter='exact', or choose a smaller alpha."
            )
        G = vectors * np.sqrt(np.maximum(roots, 0.0))
        loadings, values = combined_eigenpairs_diagonal(G, 2.0, np.einsum("ij,ij->i", G, G) - share * within, -1.0)
        return loadings, values


def _between_eigenpairs(moments: Moments, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return eigenvalues (r,) and eigenvectors (features, r) of cross · weights · crossᵀ.

    cross: (features, classes), cross-scatter of rows and class indicators in `moments`.
    weights: (classes, classes), symmetric.
    """
    basis, _ = moments.reduced(moments.cross, moments.cross.shape[1] ** 0.5)
    inner = basis.T @ moments.cross
    roots, turn = np.linalg.eigh(inner @ weights @ inner.T)
    return roots, basis @ turn


def _is_pair(pair: Any) -> bool:
    return isinstance(pair, list | tuple) and len(pair) == 3 and finite_number(pair[2])
