"""Probes: small classifiers of projected rows, to evaluate projections.

There are three kinds of probes:

- nearest class mean,
- k nearest neighbours among sampled rows,
- linear classifier: a multinomial logistic regression. If rows have several labels, a ridge
  regression for all labels together.

All probes are fitted on the same sampled rows after the projection. If rows have one label, a
probe predicts the code of the label. If rows have several labels, a probe predicts a score in
[−1, 1] for each label.

When the projection changes, the probes must be fitted again, because the projected rows have
other coordinates.

Costs, with r sampled rows, p components and k labels:

    probe        fit                     prediction of a row
    mean         O(r p)                  O(p k)
    neighbours   O(r p)                  O(r p)
    linear       O(r p k) per iteration  O(p k)
"""

from typing import NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression, Ridge

from stream_dr.rows.block import Rows
from stream_dr.solve.neighbours import means_by_class, nearest_mean, squared_distances


class ProbeSample(NamedTuple):
    """Projected rows on which probes (small classifiers) are fitted.

    Attributes
    ----------
    Z : ndarray or CSR (rows, components)
        Projected rows.
    y : ndarray
        If rows have one label: (rows,) label codes. If rows have several labels: (rows, labels)
        bool, True if the row has the label.
    means : ndarray (labels, components) or None
        For each label, the projected mean of all learned rows with the label. None: use the means
        of the sampled rows.
    others : ndarray (labels, components) or None
        For each label, the projected mean of all learned rows without the label. None if rows have
        one label.
    labels : int
        Number of different labels.
    """

    Z: Rows
    y: np.ndarray
    means: np.ndarray | None
    others: np.ndarray | None
    labels: int


class Probe(Protocol):
    """Fitted classifier of projected rows."""

    def predict(self, Z: Rows) -> np.ndarray:
        """Predict the labels of projected rows Z (rows, components).

        If rows have one label, returns label codes (rows,). If rows have several labels, returns
        scores (rows, labels) in [−1, 1]. A score above 0 means that the row has the label.
        """
        ...


class NearestMean:
    """Classifier that predicts the label with the nearest class mean.

    If rows have several labels, two means are compared for each label: the mean of the rows with
    the label, and the mean of the rows without the label. A row is predicted to have the label if
    the first mean is nearer.
    """

    def __init__(self, sample: ProbeSample) -> None:
        if sample.means is not None:
            self._means, self._others = sample.means, sample.others
        else:
            self._means, self._others = means_with_and_without_label(sample)

    def predict(self, Z: Rows) -> np.ndarray:
        """Classify projected rows, as `Probe.predict` describes."""
        if self._others is None:
            return nearest_mean(Z, self._means)

        # Each label has two means, of the rows with the label and of the rows without the label.
        # A mean over no rows is NaN, and the label's score is then −1.
        with np.errstate(invalid="ignore"):
            distance_with = np.sqrt(squared_distances(Z, self._means))
            distance_without = np.sqrt(squared_distances(Z, self._others))
            scores = (distance_without - distance_with) / (distance_without + distance_with)
        return np.where(np.isfinite(scores), scores, -1.0)


class NearestNeighbours:
    """Classifier that predicts from k neighbours, the nearest sampled rows.

    If rows have one label, the most frequent label of the neighbours is predicted. If two labels
    are equally frequent, the label of the nearer neighbours is predicted.

    If rows have several labels, the score of a label is the share of the neighbours that have the
    label, scaled to [−1, 1].
    """

    def __init__(self, sample: ProbeSample, n_neighbours: int) -> None:
        self._sample = sample
        self._k = min(n_neighbours, len(sample.y))

    def predict(self, Z: Rows) -> np.ndarray:
        """Classify projected rows, as `Probe.predict` describes."""
        distances = squared_distances(Z, self._sample.Z)
        near = np.argpartition(distances, self._k - 1, axis=1)[:, : self._k]
        order = np.argsort(np.take_along_axis(distances, near, 1), axis=1, kind="stable")
        neighbour_targets = self._sample.y[np.take_along_axis(near, order, 1)]

        if self._sample.y.ndim == 2:
            return np.asarray(2.0 * neighbour_targets.mean(1) - 1.0)

        votes = np.zeros((len(neighbour_targets), self._sample.labels))
        for rank in range(self._k):
            # Count a nearer neighbour's vote slightly more, to decide between equal votes.
            votes[np.arange(len(votes)), neighbour_targets[:, rank]] += 1.0 - rank * 1e-6
        return np.asarray(np.argmax(votes, axis=1))


class LinearProbe:
    """Linear classifier of projected rows.

    The coordinates are scaled first. If rows have one label, the classifier is a logistic
    regression. If rows have several labels, it is a ridge regression on the values +1 (the row has
    the label) and −1 (the row does not).
    """

    def __init__(self, sample: ProbeSample) -> None:
        deviation = _column_scales(sample.Z)
        self._scale = 1.0 / np.where(deviation > 0, deviation, 1.0)
        self._multilabel = sample.y.ndim == 2
        self._labels = sample.labels

        # Label code or score that is predicted for every row if nothing can be fitted, else None.
        self._constant: int | None = None

        self._model: LogisticRegression | Ridge
        Z = self._scale_columns(sample.Z)
        if self._multilabel and Z.shape[1]:
            self._model = Ridge(alpha=1.0).fit(Z, 2.0 * sample.y - 1.0)
        elif self._multilabel:
            self._constant = -1
        elif Z.shape[1] == 0 or len(np.unique(sample.y)) < 2:
            self._constant = int(np.argmax(np.bincount(sample.y)))
        else:
            self._model = LogisticRegression(max_iter=1_000).fit(Z, sample.y)

    def predict(self, Z: Rows) -> np.ndarray:
        """Classify projected rows, as `Probe.predict` describes."""
        if self._constant is not None:
            return np.full((Z.shape[0], self._labels) if self._multilabel else Z.shape[0], self._constant)

        predicted = np.asarray(self._model.predict(self._scale_columns(Z)))
        return np.clip(predicted.reshape(Z.shape[0], -1), -1.0, 1.0) if self._multilabel else predicted

    def _scale_columns(self, Z: Rows) -> Rows:
        """Divide each coordinate of projected rows by its scale."""
        return Z @ sp.diags(self._scale) if sp.issparse(Z) else Z * self._scale


def fit_probe(probe_kind: str, sample: ProbeSample, n_neighbours: int) -> Probe:
    """Return a classifier of projected rows, fitted on a sample.

    probe_kind: "mean" (nearest class mean), "knn" (nearest neighbours) or "linear".
    n_neighbours: number of neighbours for "knn". The other classifiers ignore this parameter.
    """
    if probe_kind == "mean":
        return NearestMean(sample)
    return NearestNeighbours(sample, n_neighbours) if probe_kind == "knn" else LinearProbe(sample)


def means_with_and_without_label(sample: ProbeSample) -> tuple[np.ndarray, np.ndarray | None]:
    """Return means of sampled rows with and without each label.

    Returns two values:

    - (labels, components) mean of the rows with each label.
    - (labels, components) mean of the rows without each label. None if rows have one label.
    """
    if sample.y.ndim == 1:
        return means_by_class(sample.Z, sample.y, sample.labels), None

    sums = np.asarray(sample.Z.T @ sample.y.astype(float)).T
    counts = sample.y.sum(0)[:, None]
    total = np.asarray(sample.Z.sum(0)).ravel()
    rows = len(sample.y)
    with np.errstate(invalid="ignore", divide="ignore"):
        return sums / counts, (total - sums) / (rows - counts)


def _column_scales(Z: Rows) -> np.ndarray:
    """Return the scale of each coordinate of projected rows, (components,).

    The scale of dense rows is the standard deviation. The scale of sparse rows is the root mean
    square, because sparse rows that are centred would not be sparse any more.
    """
    return np.asarray(np.sqrt(Z.multiply(Z).mean(0))).ravel() if sp.issparse(Z) else np.asarray(Z.std(0))
