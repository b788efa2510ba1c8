"""Probes: small classifiers of projected rows, which are used to evaluate a projection.

There are three probes:

- the nearest class mean,
- the k nearest neighbours among sampled rows,
- a linear classifier. It is a multinomial logistic regression. If rows have several labels, it is
  least squares for all labels together.

All are fitted on projections of the same sampled rows. If rows have one label, a probe predicts the
label's code. If rows have several labels, it predicts a score in [−1, 1] for each label.

Publications evaluate projections with classifiers of these kinds. A probe can only classify
coordinates of the projection on which it was fitted. So probes are fitted again whenever the
projection is solved again.

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
from stream_dr.solve.nearest_mean import means_by_class, nearest_mean, squared_distances


class Sample(NamedTuple):
    """Projected rows on which probes (small classifiers) are fitted.

    Attributes
    ----------
    Z : ndarray or CSR (rows, components)
        Projected rows.
    y : ndarray
        If rows have one label, their label codes (rows,). If rows have several labels, an
        indicator (rows, labels) bool.
    means : ndarray (labels, components) or None
        Projected mean of all rows with each label. None to use the means of the sampled rows.
    others : ndarray (labels, components) or None
        If rows have several labels, the projected mean of all rows without each label.
    labels : int
        Number of labels.
    """

    Z: Rows
    y: np.ndarray
    means: np.ndarray | None
    others: np.ndarray | None
    labels: int


class Probe(Protocol):
    """Fitted classifier of projected rows."""

    def predict(self, Z: Rows) -> np.ndarray:
        """Classify projected rows (rows, components).

        Returns label codes (rows,) if rows have one label. If rows have several labels, returns
        scores (rows, labels) in [−1, 1]. A row is predicted to have the labels with a score above
        0.
        """
        ...


class NearestMean:
    """Classifier that predicts the label with the nearest class mean.

    If rows have several labels, two means are compared for each label: the mean of the rows with
    the label, and the mean of the rows without the label. A row is predicted to have the label if
    the first mean is nearer.
    """

    def __init__(self, sample: Sample) -> None:
        self._multilabel = sample.y.ndim == 2
        if sample.means is not None:
            self._means, self._others = sample.means, sample.others
        else:
            self._means, self._others = sample_means(sample)

    def predict(self, Z: Rows) -> np.ndarray:
        """Classify projected rows, as `Probe.predict` describes."""
        if not self._multilabel or self._others is None:
            return nearest_mean(Z, self._means)

        # If no row has a label, its mean and distance are NaN. Then the label's score is −1.
        with np.errstate(invalid="ignore"):
            distance_with = np.sqrt(squared_distances(Z, self._means))
            distance_without = np.sqrt(squared_distances(Z, self._others))
            scores = (distance_without - distance_with) / (distance_without + distance_with)
        return np.where(np.isfinite(scores), scores, -1.0)


class Neighbours:
    """Classifier by the labels of the k nearest sampled rows.

    If rows have one label, the most frequent label among these rows is predicted. If two labels
    are equally frequent, the label of the nearer rows is predicted.

    If rows have several labels, the score of a label is the share of these rows that have the
    label, scaled to [−1, 1].
    """

    def __init__(self, sample: Sample, k: int) -> None:
        self._sample = sample
        self._k = min(k, len(sample.y))

    def predict(self, Z: Rows) -> np.ndarray:
        """Classify projected rows, as `Probe.predict` describes."""
        distances = squared_distances(Z, self._sample.Z)
        near = np.argpartition(distances, self._k - 1, axis=1)[:, : self._k]
        order = np.argsort(np.take_along_axis(distances, near, 1), axis=1, kind="stable")
        neighbour_targets = self._sample.y[np.take_along_axis(near, order, 1)]

        if self._sample.y.ndim == 2:
            return 2.0 * neighbour_targets.mean(1) - 1.0

        votes = np.zeros((len(neighbour_targets), self._sample.labels))
        for rank in range(self._k):
            # A nearer neighbour's vote counts slightly more, which decides between equal labels.
            votes[np.arange(len(votes)), neighbour_targets[:, rank]] += 1.0 - rank * 1e-6
        return np.argmax(votes, axis=1)


class LinearProbe:
    """Linear classifier of projected rows with scaled coordinates.

    It is a logistic regression. If rows have several labels, it is a least-squares fit of targets
    +1 (with the label) and −1 (without).
    """

    def __init__(self, sample: Sample) -> None:
        deviation = _root_mean_square(sample.Z)
        self._scale = 1.0 / np.where(deviation > 0, deviation, 1.0)
        self._multilabel = sample.y.ndim == 2
        self._labels = sample.labels
        self._constant: int | None = None

        self._model: LogisticRegression | Ridge
        Z = self._scaled(sample.Z)
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

        predicted = np.asarray(self._model.predict(self._scaled(Z)))
        return np.clip(predicted.reshape(Z.shape[0], -1), -1.0, 1.0) if self._multilabel else predicted

    def _scaled(self, Z: Rows) -> Rows:
        return Z @ sp.diags(self._scale) if sp.issparse(Z) else Z * self._scale


def make_probe(name: str, sample: Sample, neighbours: int) -> Probe:
    """Return a probe (a classifier of projected rows), fitted on a sample.

    name: "mean" (nearest class mean), "knn" (nearest neighbours) or "linear".
    neighbours: number of neighbours for "knn".
    """
    if name == "mean":
        return NearestMean(sample)
    return Neighbours(sample, neighbours) if name == "knn" else LinearProbe(sample)


def sample_means(sample: Sample) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the class means of the sampled rows.

    Returns two arrays (labels, components):

    - the mean of the rows with each label,
    - the mean of the rows without each label. None if rows have one label.

    A mean of no rows is NaN.
    """
    if sample.y.ndim == 1:
        return means_by_class(sample.Z, sample.y, sample.labels), None

    sums = np.asarray(sample.Z.T @ sample.y.astype(float)).T
    counts = sample.y.sum(0)[:, None]
    total = np.asarray(sample.Z.sum(0)).ravel()
    rows = len(sample.y)
    with np.errstate(invalid="ignore", divide="ignore"):
        return sums / counts, (total - sums) / (rows - counts)


def _root_mean_square(Z: Rows) -> np.ndarray:
    """Return the scale (components,) of each coordinate.

    For dense rows it is the standard deviation. For sparse rows it is the root mean square, since
    sparse rows cannot be centred.
    """
    if sp.issparse(Z):
        return np.sqrt(np.asarray(Z.multiply(Z).mean(0)).ravel())
    return Z.std(0)
