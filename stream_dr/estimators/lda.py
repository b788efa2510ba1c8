"""LDA (linear discriminant analysis) by the two-stage method."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np

from stream_dr.errors import InvalidParameter
from stream_dr.estimators.fitting.closed_form import Directions
from stream_dr.estimators.fitting.linear_classifier import LinearClassifier, all_loadings, class_readout
from stream_dr.estimators.fitting.moments import Moments
from stream_dr.estimators.fitting.parameter_checks import check_number
from stream_dr.estimators.fitting.two_stage_method import TwoStage
from stream_dr.readout import Readout
from stream_dr.solve.spectral import left_singular
from stream_dr.statistics.moments.accumulator import MomentState

NO_SPREAD = 1e-9
"""Share of the total variance up to which a within-class variance counts as rounding.

Along such a component, the component is scaled by its total variance instead.
"""

CERTAIN = 1e-10
"""Smallest within-class variance that classification assumes, as a share of the total variance.

With a variance of 0 a likelihood would be infinite.
"""


@dataclass(eq=False, repr=False)
class LDA(LinearClassifier, TwoStage):
    """Find the directions that separate the classes best.

    Linear discriminant analysis in one pass. It maximises the scatter between classes relative to
    the total scatter. LDA is also a classifier, which assumes that the classes are Gaussian with
    one common covariance.

    >>> from stream_dr import LDA
    >>> lda = LDA().fit([[0.0, 1.0], [1.0, 1.0], [5.0, 0.0], [6.0, 2.0]], ["a", "a", "b", "b"])
    >>> lda.rank_, lda.classes_.tolist()
    (1, ['a', 'b'])

    Targets are one label a row. There are at most (classes − 1) components. Merges and unlearns.

    Parameters
    ----------
    shrinkage : float in [0, 1] or None, default None
        Ridge that is used instead of gamma and whose effect does not fade with more rows. The
        within-class scatter Sw becomes (1 − s) Sw + s (tr Sw / d) I for d features, as in
        scikit-learn's solvers "lsqr" and "eigen".
    scaling : {"unit", "source"}, default "unit"
        Length of the components. With "unit", the rows learned have *within-class* variance 1
        along every component (divisor N, the sum of weights) [mathematics §3a]. With gamma=0
        `transform` then returns what scikit-learn's LinearDiscriminantAnalysis(solver="svd")
        returns, up to signs (its earlier releases divide by N − classes). If all rows equal their
        class mean along a component, the total variance is 1 instead. With "source", the paper's
        condition Wᵀ(Cxx + γI)W = I holds, and projected rows shrink as 1/√N.
    priors : list of float or None, default None
        Probabilities of all labels learned, in the order of the sorted labels. Labels with fewer
        rows than `min_class_rows` are not yet classes, and their probability is divided among the
        classes in proportion. None takes the classes' shares of the rows. Priors weigh the class
        means in the between-class scatter and in the centre, and the classes in `predict`. The
        within-class scatter does not depend on priors, as in scikit-learn's "svd" (in "lsqr" and
        "eigen" it does).

    Attributes
    ----------
    priors_ : ndarray (classes,), float64
        Priors used.
    means_ : ndarray (classes, features), float64
        Class means.
    xbar_ : ndarray (features,), float64
        Point that rows are centred on. With `priors`, it is the mean of the class means weighted
        by the priors. Otherwise it is the mean of the rows.
    scalings_ : ndarray (features, min(classes − 1, rank)), float64
        Directions of all components, also of those past n_components, as in scikit-learn.
    explained_variance_ratio_ : ndarray (components,), float64
        Share of each component in the variance between classes, measured in units of the
        within-class covariance.

    Notes
    -----
    Solves `(Cxx + γI)⁻¹ XH Hᵀ Xᵀ w = λ w` [2S §2 and Algorithm 2; mathematics §3].

    - X are the centred rows, Cxx is their scatter and γ is the ridge `gamma`.
    - XH = Cxy diag(n_j^−1/2). Cxy is the cross-scatter of rows and class indicators, and n_j the
      weight of class j.

    Eigenvalues lie in [0, 1]. With γ = 0 this is Fisher's LDA.

    If only the diagonal of Cxx is stored (see `scatter`), `solution_` is "diagonal". The result is
    then the one-pass approximation W1 ≈ (diag(Cxx) + γ)⁻¹ XH of mathematics §4. `refine` makes
    it exact.

    `predict` takes classes as Gaussian with means m_j and one covariance Σ. Σ is (Sw + γI) / N, or
    with shrinkage ((1 − s) Sw + s (tr Sw / d) I) / N, where Sw is the within-class scatter. This
    is as in scikit-learn's LinearDiscriminantAnalysis ("svd" with γ = 0, "lsqr" with shrinkage).
    All components are used to predict, also those past n_components. If only the diagonal of Cxx
    is stored, Σ is diag(Cxx) minus the between-class scatter, as if features were uncorrelated.
    The predictions are then as approximate as the components. Along a component without
    within-class variance, Σ is 1e-10 of the total variance.

    State: O(d·(c + 2)) numbers for d features and c classes, and d² more with exact scatter.
    Learning a row costs O(its entries), and O(d²) with exact scatter. Solving costs O(d³ + d c²),
    or O(d c²) from the diagonal.
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

    def right_hand_side(self, moments: Moments, state: MomentState) -> tuple[np.ndarray, float]:
        """Return XH = Cxy diag(n_j^−1/2), and the size of the factor H.

        Cxy (features, classes) is the cross-scatter of rows and class indicators. n_j is the
        weight of class j.

        X are the centred rows, and H is the factor of the targets. The size √(tr HᵀH) decides which
        part of XH is only rounding error.
        """
        return _weighted_means(moments), len(moments.label_weights) ** 0.5

    def directions(self, moments: Moments, state: MomentState) -> Directions:
        """Return at most (classes − 1) directions and their eigenvalues.

        With `priors`, the directions are rotated within their span.
        """
        loadings, eigenvalues = super().directions(moments, state)
        most = max(len(moments.label_weights) - 1, 0)
        loadings, eigenvalues = loadings[:, :most], eigenvalues[:most]
        return (
            (loadings, eigenvalues) if self.priors is None else self._turned_by_priors(loadings, eigenvalues, moments)
        )

    def _turned_by_priors(self, loadings: np.ndarray, eigenvalues: np.ndarray, moments: Moments) -> Directions:
        """Return the directions in which class means weighted by priors differ most.

        Priors change neither the within-class scatter nor the ridge, so the directions with priors
        span the same space as those without. They are computed among the given q components, each
        scaled to within-class variance 1, by a problem of at most (q, q).
        """
        share = self.ridge_terms(moments)[0]
        unit = loadings / np.sqrt(np.maximum(1.0 - share * eigenvalues, CERTAIN))
        priors = self._priors(moments)
        centres = (moments.cross / moments.label_weights).T @ unit
        apart = np.sqrt(moments.weight * priors)[:, None] * (centres - priors @ centres)
        turn, values = left_singular(apart.T)

        ratio = values**2
        eigenvalues = ratio / (1.0 + share * ratio)
        return (unit @ turn) * np.sqrt(1.0 - share * eigenvalues), eigenvalues

    def centre(self, moments: Moments) -> np.ndarray:
        """Return the point (features,) that rows are centred on.

        This is the mean of the class means weighted by the priors, or without priors the mean of
        the rows.
        """
        if self.priors is None or not moments.labels:
            return moments.mean
        return moments.mean + moments.offsets @ self._priors(moments) / moments.scale

    def readout(self, moments: Moments, loadings: np.ndarray, eigenvalues: np.ndarray) -> Readout:
        """Return the classifier of the projected rows (a `Readout`).

        Classes are Gaussian with one covariance Σ, which is diagonal in the components. Σ along a
        component w follows from its eigenvalue λ. If `between` is the variance between classes
        along w, then wᵀ(aCxx + ρI)w / N = between / λ. Σ is this value minus a · between.
        """
        priors = self._priors(moments)
        share = self.ridge_terms(moments)[0]
        centres = moments.offsets.T @ (loadings / moments.scale[:, None])
        apart = centres - priors @ centres
        between = priors @ apart**2
        variances = between / eigenvalues * np.maximum(1.0 - share * eigenvalues, CERTAIN)
        return class_readout(moments, apart, variances, priors)

    def shrunk_trace(self, moments: Moments) -> float:
        """Return tr Sw, the trace of the within-class scatter summed over rows."""
        return max(super().shrunk_trace(moments) - float((_weighted_means(moments) ** 2).sum()), 0.0)

    def component_variances(self, loadings: np.ndarray, moments: Moments, solution: str) -> np.ndarray:
        """Return wᵀ Sw w (p,) for each component w, where Sw is the within-class scatter.

        If this is only rounding error, return wᵀ Cxx w, with the total scatter Cxx.
        """
        total, xh = super().component_variances(loadings, moments, solution), _weighted_means(moments)
        if moments.scatter is None and solution != "refined":
            within = np.maximum(moments.diagonal - (xh**2).sum(axis=1), 0.0) @ loadings**2
        else:
            within = total - self._between(loadings, moments, solution)
        return np.where(within > NO_SPREAD * total, within, total)

    def _between(self, loadings: np.ndarray, moments: Moments, solution: str) -> np.ndarray:
        """Return the between-class scatter (p,) along each component.

        The value for a component w is Σ_j n_j (wᵀ m_j)², where n_j is the weight of class j and
        m_j its mean minus the mean of all rows. A refined solution with `priors` was solved from
        class means weighted by the priors. So the means are weighted by the priors here, too.
        """
        centres = (moments.cross / moments.label_weights).T @ loadings
        if self.priors is None or solution != "refined":
            return moments.label_weights @ centres**2
        priors = self._priors(moments)
        return moments.weight * priors @ (centres - priors @ centres) ** 2

    def _priors(self, moments: Moments) -> np.ndarray:
        """Return the priors (classes,) in the moments' order of labels.

        `priors` lists all labels learned. The share of labels with fewer than `min_class_rows`
        rows is divided among the classes. Raises InvalidParameter unless `priors` has one entry
        for each label.
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
        """Probabilities (classes,) float64 of the classes, in the order of `classes_`."""
        return self._classes()[1]

    @property
    def means_(self) -> np.ndarray:
        """Class means (classes, features) float64, in the order of `classes_`."""
        return self._classes()[0]

    @property
    def xbar_(self) -> np.ndarray:
        """Point (features,) float64 that rows are centred on."""
        return self.mean_

    @property
    def scalings_(self) -> np.ndarray:
        """Directions (features, q) float64 of all components, also past n_components.

        `transform` returns the first n_components columns of (X − xbar_) · scalings_.
        """
        return all_loadings(self.linear_projection())

    @property
    def explained_variance_ratio_(self) -> np.ndarray:
        """Share (components,) float64 of each component in the variance between classes.

        Variances are measured in units of the within-class covariance.
        """
        rank = self.rank_
        means, priors = self._classes()
        centres = (means - priors @ means) @ self.scalings_
        # The readout's weights are the centres divided by the within-class variances.
        shares = priors @ (centres * self._readout().weights.T)
        return shares[:rank] / shares.sum() if shares.sum() > 0 else shares[:rank]

    def _classes(self) -> tuple[np.ndarray, np.ndarray]:
        """Return means (classes, features) and priors (classes,), sorted by label."""
        moments = self.moments(self.state_)
        order = sorted(range(len(moments.labels)), key=lambda at: moments.labels[at])
        means = moments.mean + (moments.offsets / moments.scale[:, None]).T
        return means[order], self._priors(moments)[order]


def _weighted_means(moments: Moments) -> np.ndarray:
    """Return XH (features, classes) for which XH Hᵀ Xᵀ is the between-class scatter.

    The between-class scatter is summed over rows.
    """
    return moments.cross / np.sqrt(moments.label_weights)
