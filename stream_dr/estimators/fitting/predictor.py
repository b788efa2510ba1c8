"""Base classes of estimators that predict targets from components.

TargetRegression regresses the targets on the components. Its attributes have the names of
scikit-learn's cross_decomposition. The components are uncorrelated, so the regression has one
coefficient for each component and target (`y_loadings_`). The predicted targets are the mean of
the targets plus the row's components times the coefficients.

With all components of OPLS or CCA, this is ridge regression of every target. With fewer components
it is reduced-rank regression [mathematics §10].

LinearClassifier has scores that are linear in the components. The score of a class is the
logarithm of its posterior probability, up to a term that all classes share. The projection itself
has the coefficients (`Readout`). So an estimator and the projection that a service has published
from it predict the same labels [mathematics §10].
"""

import warnings
from abc import abstractmethod
from itertools import compress
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_softmax
from sklearn.utils import ClassifierTags, Tags
from sklearn.utils.metaestimators import available_if

from stream_dr.batch.block import as_weights, weights_or_ones
from stream_dr.batch.parsing import are_probably_measurements
from stream_dr.batch.rows import as_block, take_target_column
from stream_dr.batch.targets import Targets, label_array
from stream_dr.errors import EmptyInput, InvalidParameter, ManyLabels, Uncalibrated
from stream_dr.estimators.fitting.closed_form import ClosedForm
from stream_dr.estimators.fitting.inputs import GroupsLike, RowsLike, TargetsLike, WeightsLike
from stream_dr.estimators.fitting.moments import Moments
from stream_dr.estimators.fitting.named_columns import LabelScore, warn_of_column
from stream_dr.estimators.fitting.stream_learner import NotFitted
from stream_dr.projection import Linear, Mapped
from stream_dr.readout import LOG_POSTERIORS, TARGETS, Readout
from stream_dr.statistics.protocol import Accumulator


def _may_predict_labels(estimator: "Predictor") -> bool:
    """True unless targets are numbers. Before the first batch, they may be labels."""
    return estimator.known_target_kind() != "continuous"


class Predictor(ClosedForm):
    """Base class of estimators that can predict targets.

    Their projections have a `Readout`, which computes predictions from the components.
    """

    def predict(self, X: RowsLike) -> np.ndarray:
        """Return the predicted targets of rows X (rows, features).

        The result depends on the estimator and on the kind of targets that were learned:

        - Numbers: the predicted numbers (rows,), or (rows, k) for k columns of numbers.
        - One label a row, or a classifier such as LDA: the most probable label (rows,).
        - Several labels a row: an int64 array (rows, labels), which is 1 for predicted labels and
          0 for others. Columns are in the order of `classes_`.

        A regression on labels predicts an indicator for each label, which is about 1 for rows with
        the label and 0 for other rows. With one label a row, the label of the highest indicator is
        returned. With several labels, all labels with an indicator of at least a half are returned.

        Raises NotFitted, WidthMismatch, NotFinite.
        """
        readout, scores = self._score_targets(X)
        return readout.predict(scores)

    def partial_fit(
        self,
        X: RowsLike,
        y: TargetsLike = None,
        sample_weight: WeightsLike = None,
        classes: ArrayLike | None = None,
        *,
        groups: GroupsLike = None,
    ) -> Self:
        """Learn more rows X (rows, features) with targets.

        If an error is raised, the state is unchanged.

        y: targets (rows,), or (rows, k) for k columns of numbers.
        sample_weight: weights (rows,).
        classes: ignored, because new labels may come at any time. The argument exists for code
            written for scikit-learn's classifiers.
        groups: group (rows,) of each row, as in `fit`.
        """
        return super().partial_fit(X, y, sample_weight, groups=groups)

    @available_if(_may_predict_labels)
    def decision_function(self, X: RowsLike) -> np.ndarray:
        """Return the scores (rows, labels) float64 of all labels, in the order of `classes_`.

        With one label a row, `predict` returns the label of the highest score. If there are two
        such labels, the result is (rows,), the second label's score minus the first label's score.
        LDA and ClassMeans return logarithms of posterior probabilities, up to a term that all
        classes share. Other estimators return the predicted indicators of the labels, which are
        about 1 for rows with the label and 0 for other rows.

        Raises NotFitted, WidthMismatch, NotFinite.
        """
        readout, scores = self._score_targets(X)
        return readout.decisions(scores)

    def _score_targets(self, X: RowsLike) -> tuple[Readout, np.ndarray]:
        """Return a Readout, which scores labels or targets from components, and its scores of X."""
        # The scores are (rows, k) for k labels or targets. Predictions are made from them.
        projection = self.linear_projection()
        readout = fitted_readout(projection)
        return readout, self.project(projection.target_score_projection(), X)

    def known_target_kind(self) -> str | None:
        """Return the kind of targets, or None if it is not known yet.

        The kind is that of the learned targets. Before any are learned, it is the parameter
        `target`, unless this is "auto".
        """
        if "fitted_" in vars(self) and self.fitted_.accumulator.target_kind is not None:
            return self.fitted_.accumulator.target_kind
        if self.target == "auto":
            return None
        return self.target

    def _find_readout(self) -> Readout:
        return fitted_readout(self.linear_projection())


def fitted_readout(projection: Linear | Mapped) -> Readout:
    """Return a projection's readout, which predicts targets from components.

    Raises NotFitted if no target was learned with a weight above 0.
    """
    if projection.readout is None or not len(projection.readout.offset):
        raise NotFitted("no target has been learned with a weight above 0: pass rows with targets first.")
    return projection.readout


class TargetRegression(Predictor):
    """Base class of methods that regress targets on the components.

    If target="class", scikit-learn treats the estimator as a classifier, and so stratifies the
    folds of a cross-validation. After labels were learned, it is a classifier for target="auto",
    too.

    Attributes
    ----------
    coef_ : ndarray (targets, features), float64
        Coefficients. Predicted targets are (X − mean_) · coef_ᵀ + intercept_. For labels, a target
        is the indicator of a label, 1 for rows with the label and 0 for other rows.
    intercept_ : ndarray (targets,), float64
        Means of the targets.
    x_loadings_ : ndarray (features, components), float64
        Change of the features per unit of each component, by least squares.
    y_loadings_ : ndarray (targets, components), float64
        Change of the targets per unit of each component.
    """

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # Call the estimator a classifier, so that scikit-learn stratifies folds by class.
        if self.known_target_kind() == "class":
            tags.estimator_type = "classifier"
            tags.classifier_tags = ClassifierTags()
        return tags

    def score(self, X: RowsLike, y: TargetsLike, sample_weight: WeightsLike = None) -> float:
        """Return R² or accuracy of the predictions, as in scikit-learn.

        If targets are numbers, the score is R², averaged over the columns of targets. If targets
        are labels, the score is the share of rows whose label is predicted correctly. With several
        labels a row, all labels of the row must be correct.

        Parameters
        ----------
        X : rows (rows, features)
            Rows to predict.
        y : array (rows,) or (rows, targets)
            True targets, in the form that `fit` takes. Rows without a target are left out.
        sample_weight : array (rows,) or None
            Weight of each row.

        Raises
        ------
        EmptyInput
            If no row has a target and a weight above 0.
        InvalidTargets
            If y is of another kind than the targets learned. Errors of `predict` are raised, too.
        """
        # The import takes a second, so only callers of `score` wait for it.
        from sklearn.metrics import r2_score

        # Leave out rows without a target and rows of weight 0.
        block = take_target_column(as_block(X, y, sample_weight))
        predicted = self.predict(block.X)
        targets = self._parse_targets(self.fitted().accumulator, block.y, len(predicted))
        weights = weights_or_ones(as_weights(block.weights, len(predicted)), len(predicted))
        # `targets.present` (rows,) is True for rows with a target, and None if all rows have one.
        if targets is None or targets.present is None:
            there = weights > 0
        else:
            there = (weights > 0) & targets.present
        if targets is None or not there.any():
            raise EmptyInput("no row has a target and a weight above 0: there is nothing to score. Pass such rows.")

        scored = np.flatnonzero(there)
        targets = targets.take(scored)
        predicted = predicted[scored]
        weights = weights[scored]
        if targets.values is not None:
            return float(r2_score(targets.values, predicted, sample_weight=weights))

        # With several labels a row, compare the sets of labels.
        truth = targets.targets_by_row()
        labels = predicted.tolist()
        if targets.kind == "multilabel":
            truth = [set(row) for row in truth]
            labels = [set(compress(self._find_readout().labels, row)) for row in labels]
        right = [a == b for a, b in zip(truth, labels, strict=True)]
        return float(np.average(right, weights=weights))

    @property
    def coef_(self) -> np.ndarray:
        """Coefficients (targets, features) float64.

        Predicted targets are (X − mean_) · coef_ᵀ + intercept_. For labels, a target is the
        indicator of a label, 1 for rows with the label and 0 for other rows.
        """
        projection = self.linear_projection()
        return np.asarray(projection.loadings @ fitted_readout(projection).weights).T

    @property
    def intercept_(self) -> np.ndarray:
        """Means (targets,) float64 of the targets, as in scikit-learn's PLSRegression."""
        return self._find_readout().offset

    @property
    def y_loadings_(self) -> np.ndarray:
        """Changes of targets per unit of a component.

        The array is (targets, components) float64.
        """
        return self._find_readout().weights.T

    @property
    def x_loadings_(self) -> np.ndarray:
        """Changes of features per unit of a component.

        The array is (features, components) float64. The changes are computed by least squares from
        the rows' scatter. If only the diagonal of the scatter is stored, features are taken as
        uncorrelated. Raises InvalidParameter if the solution is "refined", because the scatter is
        then not known.
        """
        projection = self.linear_projection()
        if projection.solution == "refined":
            raise InvalidParameter(
                f"{type(self).__name__} was refined, and x_loadings_ needs Cxx, which is not kept. Give scatter='exact'."
            )
        # The moments are of scaled features x·scale, which have the same components as the features
        # x if the loadings w are divided by scale: Σ (x·scale)·(w/scale) = Σ x·w.
        m = self.moments(self.state_)
        scale = m.scale[:, None]
        W = projection.loadings / scale
        # Regress the scaled features on the components: the coefficients are (Wᵀ Cxx W)⁻¹ Wᵀ Cxx.
        scatter_times_W = m.scatter_product(W)
        coefficients = np.linalg.lstsq(W.T @ scatter_times_W, scatter_times_W.T, rcond=None)[0]
        # A feature is its scaled feature divided by scale, and so are its coefficients.
        return coefficients.T / scale

    def inverse_transform(self, Z: ArrayLike) -> np.ndarray:
        """Return the rows that have the components Z.

        The result is (rows, features) float64. The rows are Z · x_loadings_ᵀ + mean_. Raises
        WidthMismatch if Z has another number of columns. Raises InvalidParameter if there is a
        feature map, because a map cannot be inverted.

        Z: (rows, components).
        """
        return np.asarray(self._checked_components(Z) @ self.x_loadings_.T + self.mean_)

    @property
    def classes_(self) -> np.ndarray:
        """Labels learned, sorted. Empty if targets are numbers.

        Labels of total weight 0 and labels with fewer than `min_class_rows` rows are not included.
        """
        readout = self.linear_projection().readout
        if readout is None:
            return label_array(())
        return readout.classes

    def readout(self, moments: Moments, loadings: np.ndarray, eigenvalues: np.ndarray) -> Readout:
        """Return a `Readout` that regresses targets on the components.

        moments: centred sums of the rows and targets.
        loadings: (features, p), loadings of p components.
        eigenvalues: (p,), eigenvalues of the components.
        """
        # `loadings` are for features x, and the moments are of scaled features x·scale. Loadings w
        # divided by scale give the same components of these: Σ (x·scale)·(w/scale) = Σ x·w.
        W = loadings / moments.scale[:, None]
        # For a component w, the coefficients (targets,) are wᵀ Cxy / wᵀ A w. Cxy is the
        # cross-scatter of rows and targets, and A the rows' scatter, with the method's ridge.
        covariances = W.T @ moments.cross
        # `variances` (p,) has wᵀ A w for each component. Some methods compute it from W, others
        # from the eigenvalues and covariances.
        variances = self.component_variances(moments, W, eigenvalues, covariances)
        weights = covariances / variances[:, None]
        # Sort the targets by label: `label_order` lists their indices in this order. It is empty
        # for numeric targets, which keep their order. Before the first target, `moments.kind` is
        # None.
        columns = moments.label_order or slice(None)
        labels = tuple(sorted(moments.labels))
        kind = moments.kind or "continuous"
        return Readout(weights[:, columns], moments.target_mean[columns], kind, labels, scores=TARGETS)

    @abstractmethod
    def component_variances(
        self, moments: Moments, loadings: np.ndarray, eigenvalues: np.ndarray, covariances: np.ndarray
    ) -> np.ndarray:
        """Return the ridged variance wᵀ A w (p,) of each component w.

        A (features, features) is the rows' scatter, with a ridge if the method has one. The caller
        divides the covariances by wᵀ A w, which gives the coefficients of a regression on the
        components. A method computes wᵀ A w either from the loadings, or from the eigenvalues and
        the covariances, if these determine it.

        moments: centred sums of the rows and targets.
        loadings: (features, p), the p components w, for the scaled features of `moments`.
        eigenvalues: (p,), eigenvalues of the components.
        covariances: (p, targets), sums over the rows of components times targets.
        """

    def _fit(self, X: RowsLike, y: TargetsLike, weights: WeightsLike) -> Self:
        super()._fit(X, y, weights)
        self._warn_if_numbers()
        return self

    def _partial_fit(self, X: RowsLike, y: TargetsLike, weights: WeightsLike) -> Self:
        super()._partial_fit(X, y, weights)
        self._warn_if_numbers()
        return self

    def _warn_if_numbers(self) -> None:
        """Issue the warning ManyLabels if classes are probably measurements."""
        learned = self.fitted().accumulator
        if self.target != "auto" or not learned.labels or type(learned.labels[0]) is not int:
            return
        if are_probably_measurements(learned.target_kind, len(learned.labels), learned.rows):
            # The text has no numbers, so that Python shows it once for many batches.
            warnings.warn(
                f"{type(self).__name__} reads whole numbers as classes, and they have more values than a tenth of the rows. "
                'Give target="continuous" to predict them as numbers, or target="class" for classes.',
                ManyLabels,
                stacklevel=4,
            )

    def _parse_targets(self, accumulator: Accumulator, y: TargetsLike, n_rows: int) -> Targets | None:
        if self.target == "class":
            warn_of_column(y, stacklevel=6)
        return super()._parse_targets(accumulator, y, n_rows)


def ridged_variance_by_component(covariances: np.ndarray, eigenvalues: np.ndarray) -> np.ndarray:
    """Return the ridged variance wᵀ A w of each component w.

    The result is (p,) for p components of a two-stage method. Such a method solves the
    eigenproblem B Bᵀ w = λ A w, so wᵀ A w is ‖Bᵀ w‖² / λ for a component w of any length. A
    (features, features) is the rows' scatter with a ridge. B (features, k) is computed from the
    rows and targets. (The two stages are the linear system A V = B, and a small eigenproblem.)

    covariances: (p, k), the vectors Bᵀ w.
    eigenvalues: (p,), the eigenvalues λ.
    """
    return np.asarray((covariances**2).sum(axis=1) / eigenvalues)


class LinearClassifier(LabelScore, Predictor):
    """Base class of estimators that are also classifiers.

    Attributes
    ----------
    classes_ : ndarray (classes,)
        Labels learned, sorted. Labels of total weight 0 and labels with fewer than
        `min_class_rows` rows are not included.
    coef_ : ndarray (classes, features), float64
        Coefficients of `decision_function`, which is X · coef_ᵀ + intercept_. For two classes the
        shape is (1, features).
    intercept_ : ndarray (classes,), float64
        Intercepts of `decision_function`. For two classes the shape is (1,).
    """

    predicts_with_all = True

    def predict_proba(self, X: RowsLike) -> np.ndarray:
        """Return posterior probabilities (rows, classes) float64.

        Columns are in the order of `classes_`. If the projection was computed from only the
        diagonal of the rows' scatter matrix (`solution_` is "diagonal"), the warning Uncalibrated
        is issued. Correlated features then count several times.
        """
        readout, scores = self._score_targets(X)
        self._warn_if_uncalibrated()
        return readout.probabilities(scores)

    def predict_log_proba(self, X: RowsLike) -> np.ndarray:
        """Return logarithms of the posterior probabilities, float64 (rows, classes).

        If the projection was computed from only the diagonal of the rows' scatter matrix
        (`solution_` is "diagonal"), the warning Uncalibrated is issued.
        """
        _, scores = self._score_targets(X)
        self._warn_if_uncalibrated()
        return np.asarray(log_softmax(scores, axis=1))

    @property
    def classes_(self) -> np.ndarray:
        """Labels learned, sorted.

        Labels of total weight 0 and labels with fewer than `min_class_rows` rows are
        not included.
        """
        return self._find_readout().classes

    @property
    def coef_(self) -> np.ndarray:
        """Coefficients of `decision_function`, float64 (classes, features).

        `decision_function` is X · coef_ᵀ + intercept_. For two classes the shape is (1, features).
        """
        return _class_difference(self._coefficients())

    @property
    def intercept_(self) -> np.ndarray:
        """Intercepts of `decision_function`, float64 (classes,).

        For two classes the shape is (1,).
        """
        projection = self.linear_projection()
        intercepts = fitted_readout(projection).offset - self._coefficients() @ projection.mean
        return _class_difference(intercepts)

    def _parse_targets(self, accumulator: Accumulator, y: TargetsLike, n_rows: int) -> Targets | None:
        if "multilabel" not in (self.target, accumulator.target_kind):
            warn_of_column(y, stacklevel=6)
        return super()._parse_targets(accumulator, y, n_rows)

    def _coefficients(self) -> np.ndarray:
        """Return the coefficients of every class's score, (classes, features)."""
        # Two classes have two rows here, while `coef_` has only their difference.
        projection = self.linear_projection()
        return np.asarray((loadings_used_to_predict(projection) @ fitted_readout(projection).weights).T)

    def _warn_if_uncalibrated(self) -> None:
        if self.solution_ == "diagonal":
            warnings.warn(
                f"{type(self).__name__} keeps only the diagonal of Cxx here: its probabilities are too near 0 and 1. "
                "refine(source) solves with all of Cxx; scikit-learn's CalibratedClassifierCV calibrates on rows held out; "
                "predict and decision_function need neither.",
                Uncalibrated,
                stacklevel=3,
            )


def loadings_used_to_predict(projection: Linear | Mapped) -> np.ndarray:
    """Return the loadings of the components used for predictions.

    The loadings are (features, q) for q components. A prediction may use more components than the
    n_components components of `transform`. All components used by the prediction are included.
    """
    rest = None
    if projection.readout is not None:
        rest = projection.readout.rest
    if rest is None:
        return projection.loadings
    return np.hstack([projection.loadings, rest])


def gaussian_class_readout(
    moments: Moments, class_means: np.ndarray, within_variances: np.ndarray, class_priors: np.ndarray
) -> Readout:
    """Return a `Readout` that classifies Gaussian classes.

    All classes have the same covariance. The covariance is diagonal in the components.

    moments: centred sums of the rows and targets.
    class_means: (classes, q), class means along q components.
    within_variances: (q,), variances within classes along the components.
    class_priors: (classes,), prior probabilities, in the order of `moments.labels`. If the
        probability is 0, the score of the class is −inf.
    """
    # For components z, a class (mean μ, variances v, prior π) scores z · μ/v + log π − ½ Σ μ²/v.
    weights = (class_means / within_variances).T
    # The logarithm of the prior 0 is −inf, without a warning.
    with np.errstate(divide="ignore"):
        offset = np.log(class_priors) - 0.5 * (class_means**2 / within_variances).sum(axis=1)
    # Sort the classes by label. Before the first target, `moments.kind` is None.
    order = moments.label_order
    kind = moments.kind or "class"
    return Readout(weights[:, order], offset[order], kind, tuple(sorted(moments.labels)), LOG_POSTERIORS)


def _class_difference(class_values: np.ndarray) -> np.ndarray:
    """Return the difference of two classes' values.

    The first class's value is subtracted from the second class's value. If there are not exactly
    two classes, their values are returned unchanged.

    class_values: (classes, …), a value or a row of values for each class.
    """
    return class_values[1:] - class_values[:1] if len(class_values) == 2 else class_values
