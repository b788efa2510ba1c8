"""Readout: the part of a projection that predicts targets.

A row has one score for each class or target column. The scores are linear in the row's components
z: scores = z · weights + offset. There are three kinds of scores:

* logarithms of the classes' posterior probabilities, up to a term that all classes share,
* indicators of labels (1 if the row has the label, else 0), predicted by regression,
* numbers, predicted by regression.

With a readout, a published projection can predict without the state that was solved.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import softmax

from stream_dr import checks
from stream_dr.batch.targets import KINDS, Label, label_array

TARGETS = "targets"
"""Scores are targets that regression predicts: numbers, or indicators of labels."""

LOG_POSTERIORS = "log posteriors"
"""Scores are log posterior probabilities, up to a term that all classes share."""


class Readout(NamedTuple):
    """Linear function that predicts targets from components z (rows, components).

    A row has k scores: one for each label, or one for each target column if targets are numbers.

    Attributes
    ----------
    weights : (components, k) float64
        Coefficients of the scores. If there is `rest`, the shape is (components + r, k).
    offset : (k,) float64
        Constant of each score.
    kind : str
        Kind of targets: "class", "multilabel" or "continuous".
    labels : tuple of k labels, sorted
        Empty if targets are numbers.
    scores : str
        Meaning of the scores: TARGETS or LOG_POSTERIORS.
    rest : (features, r) or None
        Loadings of r components that `n_components` excludes but that the prediction uses.
    """

    weights: np.ndarray
    offset: np.ndarray
    kind: str
    labels: tuple[Label, ...]
    scores: str
    rest: np.ndarray | None = None

    def check(self, n_features: int, n_components: int) -> None:
        """Raise DamagedFile unless the arrays fit the projection.

        n_features: number of features of the projection.
        n_components: number of components of the projection.
        """
        k = len(self.offset)
        n_rest = 0
        if self.rest is not None:
            n_rest = checks.shape_of_checked_matrix(self, "rest")[1]
            checks.check_dtype_and_shapes(self, np.float64, rest=(n_features, n_rest))
        checks.check_dtype_and_shapes(self, np.float64, weights=(n_components + n_rest, k), offset=(k,))
        checks.check_finite_arrays(self, "weights", "offset", "rest")
        checks.check_one_of(self, "kind", KINDS)
        checks.check_one_of(self, "scores", (TARGETS, LOG_POSTERIORS))

        checks.check_distinct_labels(self)
        if len(self.labels) != (0 if self.kind == "continuous" else k):
            raise checks.field_error(self, "labels", f"{len(self.labels)} labels", f"of {k} scores")

    def orient_components(self, order: np.ndarray, signs: np.ndarray) -> "Readout":
        """Return the readout for reordered components with changed signs.

        order: (components,) indices of the components.
        signs: (components,) of ±1.
        """
        p = len(order)
        return self._replace(weights=np.vstack([self.weights[order] * signs[:, None], self.weights[p:]]))

    def turned(self, turn: np.ndarray) -> "Readout":
        """Return the readout for components that are multiplied by `turn`, as in Linear.turned."""
        p = len(turn)
        return self._replace(weights=np.vstack([turn.T @ self.weights[:p], self.weights[p:]]))

    @property
    def classes(self) -> np.ndarray:
        """Labels (k,), sorted."""
        return label_array(self.labels)

    @property
    def predicts_label_sets(self) -> bool:
        """True if several labels may be predicted for a row."""
        return self.kind == "multilabel" and self.scores == TARGETS

    def predict(self, target_scores: np.ndarray) -> np.ndarray:
        """Return the targets predicted by scores (rows, k).

        The result depends on the kind of targets:

        * One label per row: the label (rows,) of the highest score.
        * Several labels per row: (rows, k) int64, 1 for scores of at least a half and 0 for
          others. If the scores are log posteriors: the label (rows,) of the highest score.
        * Numbers: (rows,), or (rows, k) if there are several target columns.
        """
        if self.kind == "continuous":
            return target_scores[:, 0] if target_scores.shape[1] == 1 else target_scores
        if self.predicts_label_sets:
            return (target_scores >= 0.5).astype(np.int64)
        return np.asarray(self.classes[target_scores.argmax(axis=1)])

    def decisions(self, target_scores: np.ndarray) -> np.ndarray:
        """Return scores (rows, k) as scikit-learn's `decision_function` does.

        If one of two labels is predicted, the result is (rows,), the second label's score minus
        the first label's score.
        """
        if len(self.labels) == 2 and not self.predicts_label_sets:
            return np.asarray(target_scores[:, 1] - target_scores[:, 0])
        return target_scores

    def probabilities(self, log_probabilities: np.ndarray) -> np.ndarray:
        """Return the posterior probabilities (rows, k) of k classes.

        log_probabilities: (rows, k), logarithms of the probabilities, up to a term that all classes
            share.
        """
        return np.asarray(softmax(log_probabilities, axis=1))
