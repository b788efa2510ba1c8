"""LDA (linear discriminant analysis) by the two-stage method."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from stream_dr.errors import InvalidParameter
from stream_dr.estimators.fitting.closed_form import Directions
from stream_dr.estimators.fitting.moments import Moments
from stream_dr.estimators.fitting.parameters import check_number_in_range
from stream_dr.estimators.fitting.predictor import (
    LinearClassifier,
    gaussian_class_readout,
    loadings_used_to_predict,
)
from stream_dr.estimators.fitting.two_stage_method import RightHandSide, TwoStage
from stream_dr.readout import Readout
from stream_dr.solve.spectral import left_singular_pairs
from stream_dr.statistics.moments.state import MomentState

ZERO_WITHIN_VARIANCE = 1e-9
"""Share of the total variance up to which a within-class variance counts as zero.

A component whose within-class variance counts as zero is scaled by its total variance.
"""

SMALLEST_WITHIN_VARIANCE = 1e-10
"""Smallest within-class variance in a likelihood, as a share of the total variance.

A smaller within-class variance is replaced by this share of the total variance. A variance of 0
would make the likelihood infinite.
"""


@dataclass(eq=False, repr=False)
class LDA(LinearClassifier, TwoStage):
    """Find the directions that separate the classes best.

    Linear discriminant analysis in one pass. The directions maximise the scatter between classes
    relative to the total scatter. LDA is also a classifier, which assumes Gaussian classes with
    one common covariance.

    >>> from stream_dr import LDA
    >>> lda = LDA().fit([[0.0, 1.0], [1.0, 1.0], [5.0, 0.0], [6.0, 2.0]], ["a", "a", "b", "b"])
    >>> lda.rank_, lda.classes_.tolist()
    (1, ['a', 'b'])

    Targets are one label a row. There are at most (classes − 1) components. States can be merged,
    and rows can be unlearned.

    Parameters
    ----------
    shrinkage : float in [0, 1] or None, default None
        Regularisation s that is used instead of `gamma`. Its effect does not depend on the number
        of rows. The within-class scatter Sw (features, features) is replaced by (1 − s) Sw +
        s (tr Sw / d) I for d features, as in scikit-learn's solvers "lsqr" and "eigen".
    scaling : {"unit", "source"}, default "unit"
        Length of the components. With "unit", the *within-class* variance of the learned rows is 1
        along every component, with the sum of weights as divisor [mathematics §3a]. If gamma=0,
        `transform` then returns the same as scikit-learn's LinearDiscriminantAnalysis with
        solver="svd", up to signs. (Earlier releases of scikit-learn use another divisor.) If the
        within-class variance along a component is 0, the component is scaled to total variance 1.
        With "source", the components W satisfy Wᵀ(Cxx + γI)W = I (see Notes), as in the paper on
        two-stage methods [2S], and projected rows shrink as 1/√N for N rows.
    priors : list of float or None, default None
        Probabilities of all learned labels, in the order of the sorted labels. None means the
        classes' shares of the rows. A label with fewer rows than `min_class_rows` is not yet a
        class. Its probability is divided among the classes, in proportion to their priors. Priors
        are weights of the class means in the between-class scatter and in the centre. `predict`
        uses priors, too. The within-class scatter does not depend on priors, as in scikit-learn's
        solver "svd".

    Attributes
    ----------
    priors_ : ndarray (classes,), float64
        Probabilities of the classes that are used.
    means_ : ndarray (classes, features), float64
        Class means.
    xbar_ : ndarray (features,), float64
        Point that rows are centred on. If `priors` is set, the point is the mean of the class
        means, weighted by the priors. If `priors` is None, the point is the mean of the rows.
    scalings_ : ndarray (features, min(classes − 1, rank)), float64
        Directions of all components, also of components that n_components excludes, as in
        scikit-learn.
    explained_variance_ratio_ : ndarray (components,), float64
        Share of each component in the variance between classes, measured in units of the
        within-class covariance.

    Notes
    -----
    Solves `(Cxx + γI)⁻¹ XH (XH)ᵀ w = λ w` with XH = Cxy diag(n_j^−1/2) [2S §2 and Algorithm 2;
    mathematics §3].

    - Cxx (features, features) is the scatter of the centred rows, and γ is the ridge `gamma`.
    - Cxy (features, classes) is the cross-scatter of rows and class indicators.
    - n_j is the weight of the rows of class j.

    Eigenvalues λ are from 0 to 1. With γ = 0 this is Fisher's LDA. With `shrinkage` = s, Cxx + γI
    is replaced by (1 − s) Cxx + s (tr Sw / d) I.

    If only the diagonal of Cxx is stored (see `scatter`), `solution_` is "diagonal". The result is
    then an approximation, for which Cxx is replaced by its diagonal [mathematics §4]. `refine`
    makes the solution exact.

    `predict` assumes Gaussian classes with one covariance, the within-class scatter Sw divided by
    the weight of all rows. The ridge or `shrinkage` is added to Sw, as in scikit-learn's
    LinearDiscriminantAnalysis (solver "svd" without a ridge, "lsqr" with shrinkage). All
    components are used to predict, also components that n_components excludes. If only the
    diagonal of Cxx is stored, the features are taken as uncorrelated, so the predictions are
    approximations. Along a component without within-class variance, 1e-10 of the total
    variance is used.

    The state has O(d·(c + 2)) numbers for d features and c classes. Learning a row costs O(its
    entries). The exact scatter (the whole matrix Cxx, not only its diagonal) adds d² numbers to the
    state and O(d²) to learning a row. Solving costs O(d³ + d c²), or O(d c²) if only the diagonal is
    stored.
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
            check_number_in_range("priors", prior, low=0.0)
        if abs(sum(self.priors) - 1.0) > 1e-5:
            raise InvalidParameter(f"priors={self.priors!r} add up to {sum(self.priors):g}; they must add up to 1.")

    def right_hand_side(self, moments: Moments, state: MomentState) -> RightHandSide:
        """Return the right-hand side XH of LDA, and the norm of H.

        LDA solves the linear system (Cxx + γI) W = XH (Cxx: scatter of the rows, γ: ridge). The
        columns of X (features, rows) are the centred rows. H (rows, classes) are the class
        indicators, each column divided by the square root of the class's weight. The caller treats
        a part of XH as rounding error if it is tiny compared with the Frobenius norm of H.
        """
        return RightHandSide(moments.cross / np.sqrt(moments.label_weights), len(moments.label_weights) ** 0.5)

    def loss_factors(self, moments: Moments) -> np.ndarray:
        """Return the matrix F (classes, classes) of the loss.

        In cross-validation, the loss is the sum of |Fᵀ e|² over the rows. e (classes,) are a row's
        residuals: the class indicators minus their predictions. F is diagonal, with the entry 1/√n
        for a class whose rows have the weight n.
        """
        return np.diag(1.0 / np.sqrt(moments.label_weights))

    def directions(self, moments: Moments, state: MomentState) -> Directions:
        """Return at most (classes − 1) directions and their eigenvalues.

        Without `priors`, each class counts by its share of the rows. If `priors` is set, the
        directions are replaced by linear combinations of them. Along these, the class means,
        weighted by the priors, differ most.
        """
        loadings, eigenvalues = super().directions(moments, state)
        most = max(len(moments.label_weights) - 1, 0)
        loadings = loadings[:, :most]
        eigenvalues = eigenvalues[:most]
        if self.priors is None:
            return loadings, eigenvalues
        return self._rotate_by_priors(loadings, eigenvalues, moments)

    def _rotate_by_priors(self, loadings: np.ndarray, eigenvalues: np.ndarray, moments: Moments) -> Directions:
        """Return directions and eigenvalues for the class priors of the user.

        Without these priors, a class counts by its part of the rows. The directions w and
        eigenvalues λ for this case are given. They solve B w = λ A w with wᵀ A w = 1:

        - B is the scatter between classes, and E the scatter within classes with the ridge.
        - A = share·B + E is the matrix that LDA inverts. share is 1, or 1 − shrinkage.

        Priors change only B. The new directions are linear combinations of the given ones.

        loadings: (features, q), the q given directions.
        eigenvalues: (q,), their eigenvalues.
        """
        # wᵀ B w = λ, so wᵀ E w = 1 − share·λ. Scale to wᵀ E w = 1. A rotation does not change it.
        share = self.ridge_terms(moments)[0]
        unit = loadings / np.sqrt(np.maximum(1.0 - share * eigenvalues, SMALLEST_WITHIN_VARIANCE))

        # The new B along these directions is the product of `deviations` (classes, q) transposed
        # and `deviations`: the class means minus their mean by the priors, times roots of the
        # priors.
        priors = self._class_priors(moments)
        centres = moments.project_offsets(unit)
        deviations = np.sqrt(moments.weight * priors)[:, None] * (centres - priors @ centres)
        rotation, values = left_singular_pairs(deviations.T)
        between = values**2

        # With wᵀ E w = 1 and the new wᵀ B w = between, wᵀ A w is 1 + share·between. So the new λ is
        # between / (1 + share·between), and 1 − share·λ is 1 / (1 + share·between). Scale to
        # wᵀ A w = 1.
        eigenvalues = between / (1.0 + share * between)
        return (unit @ rotation) * np.sqrt(1.0 - share * eigenvalues), eigenvalues

    def centre(self, moments: Moments) -> np.ndarray:
        """Return the point (features,) that rows are centred on.

        If `priors` is set, the point is the mean of the class means, weighted by the priors. If
        `priors` is None, the point is the mean of the rows.
        """
        if self.priors is None or not moments.labels:
            return moments.mean
        return moments.mean + moments.offsets @ self._class_priors(moments) / moments.scale

    def readout(self, moments: Moments, loadings: np.ndarray, eigenvalues: np.ndarray) -> Readout:
        """Return the classifier of projected rows, a `Readout`.

        The classifier assumes Gaussian classes with one covariance, which is diagonal in the
        components.

        loadings: (features, q), loadings of q components, in the units of the rows (already
            multiplied by `moments.scale`).
        eigenvalues: (q,), eigenvalues of the components.
        """
        # `class_means` (classes, q) are the class means minus their mean by the priors, along the
        # components. `project_offsets` needs loadings without the factor `moments.scale`. `between`
        # (q,) is the variance of the class means.
        priors = self._class_priors(moments)
        centres = moments.project_offsets(loadings / moments.scale[:, None])
        class_means = centres - priors @ centres
        between = priors @ class_means**2

        # LDA inverts the matrix share·Cxx + ridge·I (Cxx: scatter of the rows, share: 1, or
        # 1 − shrinkage). By this matrix, a component has the variance `total`, which includes the
        # ridge. The component's eigenvalue λ is between / total.
        total = between / eigenvalues
        # The variance within classes is total − share·between, which is total·(1 − share·λ).
        share, _ = self.ridge_terms(moments)
        variances = total * np.maximum(1.0 - share * eigenvalues, SMALLEST_WITHIN_VARIANCE)
        return gaussian_class_readout(moments, class_means, variances, priors)

    def scatter_trace_for_shrinkage(self, moments: Moments) -> float:
        """Return the trace of the within-class scatter, summed over rows.

        The trace is the sum of the squared differences between the rows and their class means, over
        all features. It is not divided by the number of rows. `shrinkage` = s replaces the scatter
        Sw by (1 − s) Sw + s (trace / d) I for d features.
        """
        return max(super().scatter_trace_for_shrinkage(moments) - float(_between_scatter_diagonal(moments).sum()), 0.0)

    def scatter_along_each_component(self, loadings: np.ndarray, moments: Moments, solution_kind: str) -> np.ndarray:
        """Return the within-class scatter (p,) along each of p components.

        The scatter is a sum over rows. If the within-class scatter along a component is only
        rounding error, the component's total scatter is returned instead.

        loadings: (features, p), the components.
        solution_kind: "exact", "diagonal" (computed from only the diagonal of the scatter) or
            "refined" (improved by further passes over the rows, after which the total scatter
            along each component is known).
        """
        # The within-class scatter is the total scatter minus the scatter between classes. If the
        # total is known only from the diagonal, subtract on the diagonal, where no feature may get
        # below 0.
        total = super().scatter_along_each_component(loadings, moments, solution_kind)
        if moments.scatter is None and solution_kind != "refined":
            diagonal = np.maximum(moments.diagonal - _between_scatter_diagonal(moments), 0.0)
            within = np.einsum("i,ij,ij->j", diagonal, loadings, loadings)
        else:
            within = total - self._between_scatter_along(loadings, moments, solution_kind)
        return np.where(within > ZERO_WITHIN_VARIANCE * total, within, total)

    def _between_scatter_along(self, loadings: np.ndarray, moments: Moments, solution_kind: str) -> np.ndarray:
        """Return the between-class scatter (p,) along each of p components.

        loadings: (features, p), the components.
        solution_kind: "exact", "diagonal" or "refined" (improved by further passes over the rows).
            If it is "refined", classes count by `priors`, else by their shares of the rows.
        """
        centres = moments.project_offsets(loadings)
        if self.priors is None or solution_kind != "refined":
            return moments.label_weights @ centres**2
        priors = self._class_priors(moments)
        return moments.weight * priors @ (centres - priors @ centres) ** 2

    def _class_priors(self, moments: Moments) -> NDArray[np.float64]:
        """Return the probability of each class.

        The result is (classes,), in the order of `moments.labels`. The parameter `priors` has one
        probability for each learned label. The probabilities of labels with fewer than
        `min_class_rows` rows are divided among the classes. Raises InvalidParameter if `priors`
        has another number of entries.
        """
        # By default, the probability of a class is its share of the rows.
        if self.priors is None:
            return moments.label_weights / moments.label_weights.sum() if len(moments.labels) else np.zeros(0)

        # `moments.labels` are the classes, and `moments.waiting` the labels with too few rows.
        known = sorted(moments.labels + moments.waiting)
        if len(self.priors) != len(known):
            raise InvalidParameter(
                f"priors has {len(self.priors)} entries; {len(known)} labels have been learned so far, with "
                f"{len(moments.waiting)} that wait for min_class_rows={self.min_class_rows} rows. Give one for each, in the "
                "order of the sorted labels, or leave priors out until all of them have been learned."
            )

        # Select the probabilities of the labels that are classes.
        # Dividing by the sum below distributes the other labels' probabilities among the classes.
        by_label = dict(zip(known, self.priors, strict=True))
        priors = np.array([by_label[label] for label in moments.labels], dtype=float)
        if moments.labels and not priors.any():
            raise InvalidParameter(
                f"priors={self.priors!r} are 0 for all labels that do not wait for min_class_rows={self.min_class_rows} "
                "rows. Give one of them a probability, or leave priors out."
            )
        priors /= priors.sum()
        return priors

    @property
    def priors_(self) -> np.ndarray:
        """Probability of each class, in the order of `classes_`.

        The array is (classes,) float64.
        """
        moments = self.moments(self.state_)
        return self._class_priors(moments)[moments.label_order]

    @property
    def means_(self) -> np.ndarray:
        """Class means (classes, features) float64, in the order of `classes_`."""
        return self.moments(self.state_).class_means

    @property
    def xbar_(self) -> np.ndarray:
        """Point (features,) float64 that is subtracted from rows."""
        return self.mean_

    @property
    def scalings_(self) -> np.ndarray:
        """Directions of all q components, not only of n_components.

        The array is (features, q) float64. `transform` returns the first n_components columns of
        (X − xbar_) · scalings_.
        """
        return loadings_used_to_predict(self.linear_projection())

    @property
    def explained_variance_ratio_(self) -> np.ndarray:
        """Share of each component in the variance between classes, (components,).

        Variances are measured in units of the within-class covariance.
        """
        rank = self.rank_
        means = self.means_
        priors = self.priors_
        centres = (means - priors @ means) @ self.scalings_
        # For each component, divide the variance between classes by the variance within classes.
        # The classifier's weights are class means already divided by the variance within classes.
        shares: np.ndarray = priors @ (centres * self._find_readout().weights.T)
        return shares[:rank] / shares.sum() if shares.sum() > 0 else shares[:rank]


def _between_scatter_diagonal(moments: Moments) -> np.ndarray:
    """Return the diagonal (features,) of the between-class scatter, summed over rows."""
    return np.asarray(np.einsum("ij,ij,j->i", moments.cross, moments.cross, 1.0 / moments.label_weights))
