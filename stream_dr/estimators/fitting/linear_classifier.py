"""LinearClassifier: classification by scores that are linear in a row's components.

The scores are log posterior probabilities up to a term that all classes share. They are read from
the projection (its `Readout`), so an estimator and what a service has published of it predict
alike [mathematics §10].
"""

import warnings
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_softmax

from stream_dr.errors import Uncalibrated
from stream_dr.estimators.fitting.closed_form import ClosedForm
from stream_dr.estimators.fitting.inputs import RowsLike, TargetsLike, WeightsLike
from stream_dr.estimators.fitting.label_column import one_label_a_row
from stream_dr.estimators.fitting.moments import Moments
from stream_dr.estimators.fitting.not_fitted import NotFitted
from stream_dr.estimators.fitting.sklearn_bases import ClassifierMixin
from stream_dr.projection import LinearProjection
from stream_dr.readout import LOG_POSTERIORS, Readout
from stream_dr.statistics.protocol import Accumulator
from stream_dr.targets.targets import Targets


class LinearClassifier(ClassifierMixin, ClosedForm):
    """Base of the estimators that are classifiers, too.

    Attributes
    ----------
    classes_ : ndarray (classes,)
        Labels learned that have weight and do not wait, sorted.
    coef_ : ndarray (classes, features), float64
        Coefficients: `decision_function` is X · coef_ᵀ + intercept_. (1, features) for two
        classes.
    intercept_ : ndarray (classes,), float64
        Intercepts of `decision_function`. (1,) for two classes.
    """

    predicts_with_all = True

    def partial_fit(
        self, X: RowsLike, y: TargetsLike = None, sample_weight: WeightsLike = None, classes: ArrayLike | None = None
    ) -> Self:
        """Learn more rows X (rows, features), targets y, weights (rows,).

        The state is unchanged on error. `classes` is ignored, for callers used to scikit-learn's
        classifiers: new labels may come at any time.
        """
        return super().partial_fit(X, y, sample_weight)

    def predict(self, X: RowsLike) -> np.ndarray:
        """Return the most probable label (rows,) of each row.

        Raises NotFitted, WidthMismatch, NotFinite.
        """
        return self._readout().predict(self._scores(X))

    def predict_proba(self, X: RowsLike) -> np.ndarray:
        """Return posterior probabilities (rows, classes) float64.

        Columns are in the order of `classes_`. Warns Uncalibrated if the solution is diagonal:
        correlated features are counted as often as there are of them.
        """
        scores = self._scores(X)
        self._warn_uncalibrated()
        return self._readout().probabilities(scores)

    def predict_log_proba(self, X: RowsLike) -> np.ndarray:
        """Return logarithms (rows, classes) float64 of the posterior probabilities.

        Warns Uncalibrated, as predict_proba.
        """
        scores = self._scores(X)
        self._warn_uncalibrated()
        return np.asarray(log_softmax(scores, axis=1))

    def decision_function(self, X: RowsLike) -> np.ndarray:
        """Return log posteriors (rows, classes) float64, up to a common term.

        For two classes return (rows,): the second's less the first's.
        """
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    @property
    def classes_(self) -> np.ndarray:
        """Labels learned that have weight and do not wait, sorted."""
        return self._readout().classes

    @property
    def coef_(self) -> np.ndarray:
        """Coefficients (classes, features) float64 of `decision_function`.

        It is X · coef_ᵀ + intercept_. (1, features) for two classes.
        """
        return _two_class_column(self._linear_scores()[0])

    @property
    def intercept_(self) -> np.ndarray:
        """Intercepts (classes,) float64 of `decision_function`.

        (1,) for two classes.
        """
        return _two_class_column(self._linear_scores()[1])

    def _parse_targets(self, accumulator: Accumulator, y: TargetsLike, rows: int) -> Targets | None:
        if "multilabel" not in (self.target, accumulator.target_kind):
            y = one_label_a_row(y, stacklevel=6)
        return super()._parse_targets(accumulator, y, rows)

    def _linear_scores(self) -> tuple[np.ndarray, np.ndarray]:
        """Return coefficients (classes, features) and intercepts (classes,) of all classes."""
        projection = self.linear_projection()
        readout = self._readout()
        coefficients = (all_loadings(projection) @ readout.weights).T
        return coefficients, readout.offset - coefficients @ projection.mean

    def _readout(self) -> Readout:
        projection = self.linear_projection()
        if projection.readout is None or not len(projection.readout.offset):
            raise NotFitted("no label has been learned with a weight above 0: pass labelled rows first.")
        return projection.readout

    def _warn_uncalibrated(self) -> None:
        if self.solution_ == "diagonal":
            warnings.warn(
                f"{type(self).__name__} keeps only the diagonal of Cxx here: its probabilities are too near 0 and 1. "
                "refine(source) solves with all of Cxx; scikit-learn's CalibratedClassifierCV calibrates on rows held out; "
                "predict and decision_function need neither.",
                Uncalibrated,
                stacklevel=3,
            )

    def _scores(self, X: RowsLike) -> np.ndarray:
        self._readout()
        projection = self.linear_projection()
        return self.project(projection.scoring(), X)


def all_loadings(projection: LinearProjection) -> np.ndarray:
    """Return loadings (features, q) of all components that scores are read from."""
    rest = None if projection.readout is None else projection.readout.rest
    return projection.loadings if rest is None else np.hstack([projection.loadings, rest])


def class_readout(moments: Moments, centres: np.ndarray, variances: np.ndarray, priors: np.ndarray) -> Readout:
    """Return the readout of Gaussian classes with one covariance.

    The covariance is diagonal in the components.

    - centres: (classes, q) class means.
    - variances: (q,).
    - priors: (classes,), in the moments' order of labels. For a prior of 0 the offset is −inf.
    """
    weights = (centres / variances).T
    with np.errstate(divide="ignore"):
        offset = np.log(priors) - 0.5 * (centres**2 / variances).sum(axis=1)
    order = sorted(range(len(moments.labels)), key=lambda at: moments.labels[at])
    labels = tuple(moments.labels[at] for at in order)
    kind = moments.kind or "class"
    return Readout(weights[:, order], offset[order], kind, labels, LOG_POSTERIORS)


def _two_class_column(values: np.ndarray) -> np.ndarray:
    return values[1:] - values[:1] if len(values) == 2 else values
