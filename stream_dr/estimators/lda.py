"""LDA: linear discriminant analysis by the two-stage method."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from stream_dr.errors import InvalidParameter
from stream_dr.estimators.fitting.closed_form import Directions
from stream_dr.estimators.fitting.linear_classifier import LinearClassifier, all_loadings, class_readout
from stream_dr.estimators.fitting.moments import Moments
from stream_dr.estimators.fitting.parameter_checks import check_number
from stream_dr.estimators.fitting.two_stage import TwoStage
from stream_dr.readout import Readout
from stream_dr.solve.spectral import left_singular

NO_SPREAD = 1e-9
"""A within-class variance below this share of the variance is rounding: as near as eigenvalues are taken to be equal."""

CERTAIN = 1e-10
"""Least share of the variance that is within classes when rows are classified: with 0 a likelihood would be infinite."""


@dataclass(eq=False, repr=False)
class LDA(LinearClassifier, TwoStage):
    """Linear discriminant analysis: maximises Sb against St, from one pass.

    Solves `(Cxx + γI)⁻¹ XH Hᵀ Xᵀ w = λ w` with XH = Cxy diag(n_j^−1/2), Cxy against the class indicator [2S §2 and
    Algorithm 2; mathematics §3]. At most (classes − 1) components; eigenvalues lie in [0, 1]. γ = 0 is Fisher's LDA.

    Targets: one label a row. State: O(d·(c + 2)) for d features and c classes, + d² with exact scatter. Learning a row
    costs O(its entries), + O(d²) with exact scatter; solving O(d³ + d c²), with the diagonal O(d c²). Merges and
    unlearns.

    From the diagonal of Cxx (`solution_` "diagonal") it is the one-pass approximation W1 ≈ (diag(Cxx) + γ)⁻¹ XH of
    mathematics §4; `refine` makes it exact.

    A classifier, too: classes are Gaussian with means m_j and one covariance Σ = ((1 − s) Sw + s (tr Sw / d) I) / N or
    (Sw + γI) / N, as in scikit-learn's LinearDiscriminantAnalysis (at γ = 0 like its "svd", with shrinkage its "lsqr").
    All components predict, also those that n_components leaves out. From the diagonal of Cxx, Σ is diag(Cxx) less Sb, so
    that features are taken to be uncorrelated in total: what is predicted is as approximate as the components. Along a
    component of no within-class variance Σ is 1e-10 of the total variance.

    Parameters
    ----------
    shrinkage : float in [0, 1] or None, default None
        In the place of gamma, a ridge whose effect does not fade as rows come: the within-class scatter becomes (1 −
        s) Sw + s (tr Sw / d) I, as in scikit-learn's solvers "lsqr" and "eigen".
    scaling : {"unit", "source"}, default "unit"
        "unit": the rows learned have *within-class* variance 1 along every component (divisor N, the sum of weights)
        [mathematics §3a]: at γ = 0 `transform` is that of scikit-learn's LinearDiscriminantAnalysis(solver="svd"), up
        to sign (earlier releases of it divide by N − classes). Along a component in which no row differs from its class
        mean (perfectly separated classes, as where rows are fewer than features and γ = 0), the total variance is 1
        instead. "source": the paper's Wᵀ(Cxx + γI)W = I, which shrinks as 1/√N.
    priors : list of float or None, default None
        Probabilities of the sorted labels, of which those that wait are a part. All must have been learned when the
        projection is asked for; the probability of labels that wait goes to the others, by their own. None: the shares
        of the classes learned. They weigh the class means in Sb and in the centre, and the classes in `predict`; Sw
        stays that of the rows, as in scikit-learn's "svd" (its "lsqr" and "eigen" weigh each class's scatter by them).

    Attributes
    ----------
    priors_ : ndarray (classes,), float64
        Priors used.
    means_ : ndarray (classes, features), float64
        Class means.
    xbar_ : ndarray (features,), float64
        What rows are centred on: the mean of the class means by `priors`, where they are given, else that of the rows.
    scalings_ : ndarray (features, min(classes − 1, rank)), float64
        Directions of all components, as scikit-learn's.
    explained_variance_ratio_ : ndarray (components,), float64
        Share of the variance between classes in units of Σ.

    >>> from stream_dr import LDA
    >>> lda = LDA().fit([[0.0, 1.0], [1.0, 1.0], [5.0, 0.0], [6.0, 2.0]], ["a", "a", "b", "b"])
    >>> lda.rank_, lda.classes_.tolist()
    (1, ['a', 'b'])
    """

    limit: ClassVar[str] = "there are at most as many as classes less 1, and as features that vary"
    target_kinds: ClassVar[tuple[str, ...]] = ("class",)

    _: KW_ONLY
    priors: list[float] | None = None

    def check_parameters(self) -> None:
        """Raise InvalidParameter when a parameter is outside its range."""
        super().check_parameters()
        if self.priors is None:
            return
        if not isinstance(self.priors, list | tuple):
            raise InvalidParameter(f"priors={self.priors!r}; it must be None or a list of probabilities, one a class.")
        for prior in self.priors:
            check_number("priors", prior, low=0.0)
        if abs(sum(self.priors) - 1.0) > 1e-5:
            raise InvalidParameter(f"priors={self.priors!r} add up to {sum(self.priors):g}; they must add up to 1.")

    def right(self, moments: Moments, state: Any) -> tuple[np.ndarray, float]:
        """Cxy diag(n_j^−1/2)."""
        return _weighted(moments), len(moments.label_weights) ** 0.5

    def directions(self, moments: Moments, state: Any) -> Directions:
        """At most (classes with weight − 1) components; with `priors` turned within their span."""
        loadings, eigenvalues = super().directions(moments, state)
        most = max(len(moments.label_weights) - 1, 0)
        loadings, eigenvalues = loadings[:, :most], eigenvalues[:most]
        return (loadings, eigenvalues) if self.priors is None else self._turned(loadings, eigenvalues, moments)

    def _turned(self, loadings: np.ndarray, eigenvalues: np.ndarray, moments: Moments) -> Directions:
        """The directions in which class means lie apart by priors, Sw and the ridge being what they were.

        They span what they spanned, so they are found among the components, scaled to unit Σ: (q, q) at most.
        """
        share = self.ridge(moments)[0]
        unit = loadings / np.sqrt(np.maximum(1.0 - share * eigenvalues, CERTAIN))
        priors = self._priors(moments)
        centres = (moments.cross / moments.label_weights).T @ unit
        apart = np.sqrt(moments.weight * priors)[:, None] * (centres - priors @ centres)
        turn, values = left_singular(apart.T)
        ratio = values**2
        found = ratio / (1.0 + share * ratio)
        return (unit @ turn) * np.sqrt(1.0 - share * found), found

    def centre(self, moments: Moments) -> np.ndarray:
        """The mean of the class means by priors."""
        if self.priors is None or not moments.labels:
            return moments.mean
        return moments.mean + moments.offsets @ self._priors(moments) / moments.scale

    def readout(self, moments: Moments, loadings: np.ndarray, eigenvalues: np.ndarray) -> Readout:
        """Classes that are Gaussian with one covariance, diagonal in the components.

        wᵀ Σ w is read from λ: with between the components' variance between classes, N wᵀ(aCxx + ρI)w = between / λ, and Σ
        lacks of it a times the between.
        """
        priors, share = self._priors(moments), self.ridge(moments)[0]
        centres = moments.offsets.T @ (loadings / moments.scale[:, None])
        apart = centres - priors @ centres
        between = priors @ apart**2
        variances = between / eigenvalues * np.maximum(1.0 - share * eigenvalues, CERTAIN)
        return class_readout(moments, apart, variances, priors)

    def shrunk_trace(self, moments: Moments) -> float:
        """tr Sw, summed."""
        return max(super().shrunk_trace(moments) - float((_weighted(moments) ** 2).sum()), 0.0)

    def spreads(self, loadings: np.ndarray, moments: Moments, solution: str) -> np.ndarray:
        """(p,) wᵀ Sw w, Sw summed, and wᵀ Cxx w where that is rounding."""
        total, xh = super().spreads(loadings, moments, solution), _weighted(moments)
        if moments.scatter is None and solution != "refined":
            within = np.maximum(moments.diagonal - (xh**2).sum(axis=1), 0.0) @ loadings**2
        else:
            within = total - self._between(loadings, moments, solution)
        return np.where(within > NO_SPREAD * total, within, total)

    def _between(self, loadings: np.ndarray, moments: Moments, solution: str) -> np.ndarray:
        """(p,) the part of wᵀ Cxx w between classes; by priors where refine has solved with those."""
        centres = (moments.cross / moments.label_weights).T @ loadings
        if self.priors is None or solution != "refined":
            return moments.label_weights @ centres**2
        priors = self._priors(moments)
        return moments.weight * priors @ (centres - priors @ centres) ** 2

    def _priors(self, moments: Moments) -> np.ndarray:
        """Return the priors (classes,) in the moments' order of labels.

        Those given are of all labels learned; what labels that wait have is shared by the others. Raises InvalidParameter
        unless there is one for each label.
        """
        if self.priors is None:
            return moments.label_weights / moments.label_weights.sum() if len(moments.labels) else np.zeros(0)
        known = sorted(moments.labels + moments.waiting)
        if len(self.priors) != len(known):
            raise InvalidParameter(
                f"priors has {len(self.priors)} entries; {len(known)} labels have been learned so far, with "
                f"{len(moments.waiting)} that wait for min_class_rows={self.min_class_rows} rows. Give one for each, in the "
                "order of the sorted labels, or leave priors out until all of them have been learned."
            )
        by_label = dict(zip(known, self.priors, strict=True))
        priors = np.array([by_label[label] for label in moments.labels], dtype=float)
        if moments.labels and not priors.any():
            raise InvalidParameter(
                f"priors={self.priors!r} are 0 for all labels that do not wait for min_class_rows={self.min_class_rows} "
                "rows. Give one of them a probability, or leave priors out."
            )
        return priors / priors.sum()

    @property
    def priors_(self) -> np.ndarray:
        """(classes,) float64 probabilities of the classes, in the order of `classes_`."""
        return self._classes()[1]

    @property
    def means_(self) -> np.ndarray:
        """(classes, features) float64 class means, in the order of `classes_`."""
        return self._classes()[0]

    @property
    def xbar_(self) -> np.ndarray:
        """(features,) float64 what rows are centred on."""
        return self.mean_

    @property
    def scalings_(self) -> np.ndarray:
        """(features, q) float64: transform is (X − xbar_) · scalings_, the first n_components columns of it."""
        return all_loadings(self.projection())

    @property
    def explained_variance_ratio_(self) -> np.ndarray:
        """(components,) float64 share of each in the variance between classes, Σ being the unit."""
        kept, (means, priors) = self.rank_, self._classes()
        centres = (means - priors @ means) @ self.scalings_
        shares = priors @ (centres * self._readout().weights.T)  # weights are centres divided by their variance
        return shares[:kept] / shares.sum() if shares.sum() > 0 else shares[:kept]

    def _classes(self) -> tuple[np.ndarray, np.ndarray]:
        """Means (classes, features) and priors (classes,), sorted by label."""
        moments = self.moments(self.state_)
        order = sorted(range(len(moments.labels)), key=lambda at: moments.labels[at])
        means = moments.mean + (moments.offsets / moments.scale[:, None]).T
        return means[order], self._priors(moments)[order]


def _weighted(moments: Moments) -> np.ndarray:
    """XH (features, classes), with XH Hᵀ Xᵀ = Sb, summed."""
    return moments.cross / np.sqrt(moments.label_weights)
