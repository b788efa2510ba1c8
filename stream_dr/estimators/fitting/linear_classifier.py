"""Base class of classifiers with scores linear in the components.

The score of a class is the logarithm of its posterior probability, up to a term that all classes
share. The projection itself has the coefficients (`Readout`). So an estimator and the projection
that a service has published from it predict the same labels [mathematics §10].
"""

import warnings
from typing import NamedTuple

import numpy as np
from scipy.special import log_softmax

from stream_dr.errors import Uncalibrated
from stream_dr.estimators.fitting.inputs import RowsLike, TargetsLike
from stream_dr.estimators.fitting.moments import Moments
from stream_dr.estimators.fitting.named_columns import LabelScore, flatten_column_with_warning
from stream_dr.estimators.fitting.predictor import Predictor, fitted_readout
from stream_dr.projection import Linear, Mapped
from stream_dr.readout import LOG_POSTERIORS, Readout
from stream_dr.statistics.protocol import Accumulator
from stream_dr.targets.targets import Targets


class LinearScores(NamedTuple):
    """Coefficients and intercepts of the scores of all classes.

    The scores of rows X are X · coefficientsᵀ + intercepts.

    Attributes
    ----------
    coefficients : (classes, features)
        Coefficients of each class.
    intercepts : (classes,)
        Intercept of each class.
    """

    coefficients: np.ndarray
    intercepts: np.ndarray


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

    def predict(self, X: RowsLike) -> np.ndarray:
        """Return the most probable label (rows,) of each row.

        Raises NotFitted, WidthMismatch, NotFinite.
        """
        readout, scores = self._score_targets(X)
        return readout.predict(scores)

    def predict_proba(self, X: RowsLike) -> np.ndarray:
        """Return posterior probabilities (rows, classes) float64.

        Columns are in the order of `classes_`. If the solution is "diagonal", the warning
        Uncalibrated is issued, because correlated features then count several times.
        """
        readout, scores = self._score_targets(X)
        self._warn_if_uncalibrated()
        return readout.probabilities(scores)

    def predict_log_proba(self, X: RowsLike) -> np.ndarray:
        """Return logarithms of the posterior probabilities, float64 (rows, classes).

        If the solution is "diagonal", the warning Uncalibrated is issued.
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
        return self._readout_or_raise().classes

    @property
    def coef_(self) -> np.ndarray:
        """Coefficients of `decision_function`, float64 (classes, features).

        `decision_function` is X · coef_ᵀ + intercept_. For two classes the shape is (1, features).
        """
        return _difference_if_two_classes(self._coefs_and_intercepts().coefficients)

    @property
    def intercept_(self) -> np.ndarray:
        """Intercepts of `decision_function`, float64 (classes,).

        For two classes the shape is (1,).
        """
        return _difference_if_two_classes(self._coefs_and_intercepts().intercepts)

    def _parse_used_targets_or_raise(self, accumulator: Accumulator, y: TargetsLike, n_rows: int) -> Targets | None:
        if "multilabel" not in (self.target, accumulator.target_kind):
            y = flatten_column_with_warning(y, stacklevel=6)
        return super()._parse_used_targets_or_raise(accumulator, y, n_rows)

    def _coefs_and_intercepts(self) -> LinearScores:
        """Return the coefficients and intercepts of all classes."""
        projection = self.linear_projection()
        readout = fitted_readout(projection)
        coefficients = (loadings_used_to_predict(projection) @ readout.weights).T
        return LinearScores(coefficients, readout.offset - coefficients @ projection.mean)

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
    rest = None if projection.readout is None else projection.readout.rest
    return projection.loadings if rest is None else np.hstack([projection.loadings, rest])


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
    weights = (class_means / within_variances).T
    with np.errstate(divide="ignore"):
        offset = np.log(class_priors) - 0.5 * (class_means**2 / within_variances).sum(axis=1)
    order = moments.label_order
    kind = moments.kind or "class"
    return Readout(weights[:, order], offset[order], kind, tuple(sorted(moments.labels)), LOG_POSTERIORS)


def _difference_if_two_classes(class_values: np.ndarray) -> np.ndarray:
    """Return the difference of the values of two classes.

    The difference is the second class's values minus the first class's values. If there are more
    classes, the values are returned unchanged.

    class_values: (classes, ...), one entry for each class.
    """
    return class_values[1:] - class_values[:1] if len(class_values) == 2 else class_values
