"""WMV: weighted maximum variance, with a weight for every pair of classes."""

from collections.abc import Sequence
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
from stream_dr.targets.label_codes import Label


@dataclass(eq=False, repr=False)
class WMV(ClosedForm):
    """Find directions that spread pairs of rows by weights of their classes.

    Weighted maximum variance. Rows of some classes are drawn together and others are driven apart,
    as the weights say. PCA and MMC are special cases.

    >>> from stream_dr import WMV
    >>> wmv = WMV(n_components=1).fit([[0.0, 1.0], [0.0, 2.0], [4.0, 1.0], [4.0, 2.0]], ["a", "a", "b", "b"])
    >>> wmv.components_.round(3).tolist()
    [[1.0, 0.0]]

    Targets are one label a row. n_components=None takes the components of positive eigenvalue.
    Merges and unlearns.

    Parameters
    ----------
    alpha : float, default -1.0
        Weight of pairs of rows of one class. Below 0 with pairs="equal".
    beta : float > 0, default 1.0
        Weight of pairs of rows of two classes.
    pairs : {"equal", "share"}, default "equal"
        Weights of pairs. "equal" takes α and β, "share" β/N, and α/n_k more for two rows of class
        k.
    pair_weights : list of (label, label, float) or None, default None
        C for rows of these two classes, either way round, in place of what the other parameters
        say.

    Notes
    -----
    Maximises ½ Σ_ij C_ij (wᵀ(x_i − x_j))² [WMV; mathematics §2]. C_ij is the weight for the
    classes of the rows i and j, times the rows' own weights w_i w_j. Components are the
    orthonormal eigenvectors of Xᵀ L X with L = D − C, ordered by algebraic value. Xᵀ L X = Σ_k d_k
    T_k − Cxy C Cxyᵀ, where T_k is the sum of (x − x̄)(x − x̄)ᵀ over class k, d_k = Σ_l C_kl n_l,
    and Cxy the cross-scatter of rows and class indicators.

    - pairs="equal" is the two-parameter form, with α < 0 for two rows of one class and β > 0 for
      rows of two classes.
    - pairs="share" is PCA with α = 0, MMC with α = −2, and weighted MMC Sb − a Sw with α = −1 − a.
      All of these have β = 1 and eigenvalues times N.

    If only the diagonal of Cxx is stored (`solution_` is "diagonal"), all classes are taken to have
    the same diagonal scatter. Where that counts as something to be maximised it has no meaning,
    and transform raises NeedsRefine.

    State: Cxx and c class matrices, 8·(c + 1)·d² bytes (170 MB for 20 classes at d = 1,000). With
    pairs="share" it is Cxx alone, and above 4,096 features the diagonal of Cxx. Learning a row
    costs O(d²), or O(its entries) for the diagonal. Solving costs O(d³ + c d²).
    """

    target_kinds: ClassVar[tuple[str, ...]] = ("class",)
    refined_by: ClassVar[Literal["first_stage", "subspace"] | None] = "subspace"

    alpha: float = -1.0
    beta: float = 1.0
    _: KW_ONLY
    pairs: Literal["equal", "share"] = "equal"
    pair_weights: Sequence[Sequence[Any]] | None = None

    def check_parameters(self) -> None:
        """Raise InvalidParameter when a parameter is outside its range."""
        super().check_parameters()
        check_choice("pairs", self.pairs, ("equal", "share"))
        check_number("alpha", self.alpha)
        check_number("beta", self.beta, low=0.0, open_low=True)
        if self.pairs == "equal" and self.alpha >= 0.0:
            raise InvalidParameter(f"alpha={self.alpha}; it must be below 0 (rows of one class are drawn together).")
        pairs = self.pair_weights
        if pairs is not None and not (isinstance(pairs, list | tuple) and all(_is_pair(pair) for pair in pairs)):
            raise InvalidParameter(f"pair_weights={pairs!r}; it must be a list of (label, label, number).")

    def keeps_class_scatter(self) -> bool:
        """True if the scatter of each class is stored, since classes' rows count differently."""
        return self.pairs == "equal" or bool(self.pair_weights)

    def class_pairs(self, moments: Moments) -> np.ndarray:
        """Return C (classes, classes), symmetric."""
        n = moments.label_weights
        if self.pairs == "equal":
            C = np.full((len(n), len(n)), float(self.beta))
            np.fill_diagonal(C, self.alpha)
        else:
            C = self.beta / n.sum() + np.diag(self.alpha / n)
        at: dict[Label, int] = {label: j for j, label in enumerate(moments.labels)}
        for a, b, weight in self.pair_weights or ():
            if a in at and b in at:
                C[at[a], at[b]] = C[at[b], at[a]] = weight
        return C

    def row_factors(self, moments: Moments) -> dict[Label, float] | None:
        """Return d_k, the factor of class k's rows in the scatter that refine multiplies with.

        Where that scatter is Cxx, rows of labels that wait count as the others do.
        """
        factors = (self.class_pairs(moments) @ moments.label_weights).tolist()
        waiting = {} if self.keeps_class_scatter() else dict.fromkeys(moments.waiting, *factors[:1])
        return dict(zip(moments.labels, factors, strict=True)) | waiting

    def directions(self, moments: Moments, state: MomentState) -> Directions:
        """Return eigenvectors of Xᵀ L X.

        Only those of positive eigenvalue, unless n_components asks for more.
        """
        if not len(moments.label_weights):
            return np.zeros((len(moments.mean), 0)), np.zeros(0)

        n = moments.label_weights
        factors = self.class_pairs(moments) @ n
        if moments.scatter is None:
            return self._diagonal(moments, factors)
        if not isinstance(state.class_scatter, ClassScatter):
            return self.directions_on(moments._replace(scatter=factors[0] * moments.scatter), state)
        total = (moments.cross * (factors / n)) @ moments.cross.T
        for j, factor in zip(np.flatnonzero(moments.present), factors, strict=True):
            total += factor * state.scale * state.class_scatter.scatter[j] * moments.scale[:, None] * moments.scale
        return self.directions_on(moments._replace(scatter=total), state)

    def directions_on(self, moments: Moments, state: MomentState) -> Directions:
        """Return the same directions, if the scatter of `moments` is Σ_k d_k T_k."""
        C = self.class_pairs(moments)
        scatter = moments.scatter
        floor = float(np.abs(C).max(initial=0.0)) * moments.weight * moments.rounding.floor(moments.diagonal)
        values, vectors = indefinite_eigenpairs(scatter - moments.cross @ C @ moments.cross.T, floor)
        p = len(values) if self.n_components is not None else int(np.count_nonzero(values > 0))
        return vectors[:, :p], values[:p]

    def _diagonal(self, moments: Moments, factors: np.ndarray) -> Directions:
        """Return directions from the diagonal of the classes' joint scatter."""
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
    """Return eigenvalues (r,) and eigenvectors (features, r) of cross · weights · crossᵀ."""
    basis, _ = moments.reduced(moments.cross, moments.cross.shape[1] ** 0.5)
    inner = basis.T @ moments.cross
    roots, turn = np.linalg.eigh(inner @ weights @ inner.T)
    return roots, basis @ turn


def _is_pair(pair: Any) -> bool:
    return isinstance(pair, list | tuple) and len(pair) == 3 and finite_number(pair[2])
