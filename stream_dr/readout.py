"""Readout: what is predicted from projected rows, as part of the projection they were projected by.

Scores are linear in a row's components, one a class or target: scores = z · weights + offset. Of classes they are the
logarithms of posterior probabilities (but for a term all classes share), or each class's indicator as regression predicts
it; of numbers the numbers themselves. So a published projection predicts without the state it was solved from.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import softmax

from stream_dr.checks import finite, labels, matrix, one_of, shaped, wrong
from stream_dr.targets.label_codes import Label, label_array
from stream_dr.targets.targets import KINDS

TARGETS = "targets"
"""Scores are the targets as regression predicts them."""

LOG_POSTERIORS = "log posteriors"
"""Scores are log posterior probabilities, but for a term all classes share."""


class Readout(NamedTuple):
    """What is predicted from z (rows, components).

    weights: (components, k) float64; with `rest`, (components + r, k). offset: (k,) float64. kind: of targets, "class",
    "multilabel" or "continuous". labels: k, sorted; () where targets are numbers. scores: TARGETS or LOG_POSTERIORS.
    rest: (features, r) loadings of the components that `n_components` leaves out and prediction reads all the same, or None.
    """

    weights: np.ndarray
    offset: np.ndarray
    kind: str
    labels: tuple[Label, ...]
    scores: str
    rest: np.ndarray | None = None

    def check(self, features: int, components: int) -> None:
        """Raise DamagedFile unless it is read from so many features and components."""
        k, more = len(self.offset), 0
        if self.rest is not None:
            more = matrix(self, "rest")[1]
            shaped(self, np.float64, rest=(features, more))
        shaped(self, np.float64, weights=(components + more, k), offset=(k,))
        finite(self, "weights", "offset", "rest")
        one_of(self, "kind", KINDS)
        one_of(self, "scores", (TARGETS, LOG_POSTERIORS))
        labels(self)
        if len(self.labels) != (0 if self.kind == "continuous" else k):
            raise wrong(self, "labels", f"{len(self.labels)} labels", f"of {k} scores")

    def oriented(self, order: np.ndarray, signs: np.ndarray) -> "Readout":
        """The same for components in another order (components,) and with signs (components,) ±1."""
        p = len(order)
        return self._replace(weights=np.vstack([self.weights[order] * signs[:, None], self.weights[p:]]))

    @property
    def classes(self) -> np.ndarray:
        """Labels (k,), sorted."""
        return label_array(self.labels)

    def predicted(self, scores: np.ndarray) -> np.ndarray:
        """Targets by scores (rows, k): labels (rows,) of the highest, indicators (rows, k) of several labels a row, int64,
        1 from a half on, or numbers (rows,) or (rows, k)."""
        if self.kind == "class":
            return self.classes[scores.argmax(axis=1)]
        if self.kind == "multilabel" and self.scores == TARGETS:
            return (scores >= 0.5).astype(np.int64)
        if self.kind == "multilabel":
            return self.classes[scores.argmax(axis=1)]
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def probabilities(self, scores: np.ndarray) -> np.ndarray:
        """(rows, k) posterior probabilities by scores that are their logarithms."""
        return np.asarray(softmax(scores, axis=1))
