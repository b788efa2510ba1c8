"""Probes: small classifiers on projected rows, by which a projection is evaluated.

There are three: the nearest class mean, the k nearest neighbours among sampled rows, and a linear
one. The linear one is multinomial logistic regression, or for several labels a row one
least-squares problem for all labels. All are fitted on projections of the same rows. They predict
codes, or scores in [−1, 1] of each label.

Papers use a projection in these ways. A probe fitted on the coordinates of an older projection
says nothing about the new ones, so probes are fitted again whenever the projection is solved
again.

Costs for r sampled rows, p components and k labels: a fit takes O(r p) for mean and neighbours,
and O(r p k) an iteration for the linear probe. A prediction takes O(p k), O(r p) and O(p k) a row.
"""

from typing import NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression, Ridge

from stream_dr.rows.block import Rows
from stream_dr.solve.nearest_mean import means_by_class, nearest_mean, squared_distances


class Sample(NamedTuple):
    """Rows that probes are fitted on.

    Attributes
    ----------
    Z : ndarray or CSR (rows, components)
        Projected rows.
    y : ndarray
        Codes (rows,), or for several labels a row an indicator (rows, labels) bool.
    means : ndarray (labels, components) or None
        Projected class means. None: those of the sampled rows.
    others : ndarray (labels, components) or None
        Projected means of the rows without each label, for several labels a row.
    labels : int
        Number of labels.
    """

    Z: Rows
    y: np.ndarray
    means: np.ndarray | None
    others: np.ndarray | None
    labels: int


class Probe(Protocol):
    """A fitted classifier of projected rows."""

    def predict(self, Z: Rows) -> np.ndarray:
        """Return codes (rows,), or for several labels scores (rows, labels).

        Scores lie in [−1, 1]. A row has the labels whose score is above 0.
        """
        ...


class NearestMean:
    """Classifier by the nearest class mean.

    For several labels, a row has a label if the mean of the rows with it is nearer than the mean
    of the rows without it.
    """

    def __init__(self, sample: Sample) -> None:
        self._multilabel = sample.y.ndim == 2
        if sample.means is not None:
            self._means, self._others = sample.means, sample.others
        else:
            self._means, self._others = sample_means(sample)

    def predict(self, Z: Rows) -> np.ndarray:
        """Return codes or scores, see Probe."""
        if not self._multilabel or self._others is None:
            return nearest_mean(Z, self._means)

        # A label without a mean has the distance NaN, and no row gets it.
        with np.errstate(invalid="ignore"):
            distance_with = np.sqrt(squared_distances(Z, self._means))
            distance_without = np.sqrt(squared_distances(Z, self._others))
            scores = (distance_without - distance_with) / (distance_without + distance_with)
        return np.where(np.isfinite(scores), scores, -1.0)


class Neighbours:
    """Classifier by the k nearest sampled rows.

    The most frequent label among them wins, and of equally frequent ones that of nearer rows. For
    several labels the score is the share of neighbours with the label, scaled to [−1, 1].
    """

    def __init__(self, sample: Sample, k: int) -> None:
        self._sample = sample
        self._k = min(k, len(sample.y))

    def predict(self, Z: Rows) -> np.ndarray:
        """Return codes or scores, see Probe."""
        distances = squared_distances(Z, self._sample.Z)
        near = np.argpartition(distances, self._k - 1, axis=1)[:, : self._k]
        order = np.argsort(np.take_along_axis(distances, near, 1), axis=1, kind="stable")
        neighbour_targets = self._sample.y[np.take_along_axis(near, order, 1)]

        if self._sample.y.ndim == 2:
            return 2.0 * neighbour_targets.mean(1) - 1.0

        votes = np.zeros((len(neighbour_targets), self._sample.labels))
        for rank in range(self._k):
            # The small difference between ranks decides ties for the nearer neighbours.
            votes[np.arange(len(votes)), neighbour_targets[:, rank]] += 1.0 - rank * 1e-6
        return np.argmax(votes, axis=1)


class LinearProbe:
    """Logistic regression on standardised coordinates.

    For several labels a row it is least squares on targets ±1.
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
        """Return codes or scores, see Probe."""
        if self._constant is not None:
            return np.full((Z.shape[0], self._labels) if self._multilabel else Z.shape[0], self._constant)

        predicted = np.asarray(self._model.predict(self._scaled(Z)))
        return np.clip(predicted.reshape(Z.shape[0], -1), -1.0, 1.0) if self._multilabel else predicted

    def _scaled(self, Z: Rows) -> Rows:
        return Z @ sp.diags(self._scale) if sp.issparse(Z) else Z * self._scale


def make_probe(name: str, sample: Sample, neighbours: int) -> Probe:
    """Return the probe "mean", "knn" or "linear", fitted on the sample.

    `neighbours` is the number of neighbours of "knn".
    """
    if name == "mean":
        return NearestMean(sample)
    return Neighbours(sample, neighbours) if name == "knn" else LinearProbe(sample)


def sample_means(sample: Sample) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the class means of the sampled rows.

    For several labels a row, also return the means of the rows without each label. Both are
    (labels, components), NaN for a label without such rows.
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
    """Return the root mean square (components,) of each coordinate.

    It is taken about the mean for dense rows, and about 0 for sparse ones, which are not shifted.
    """
    if sp.issparse(Z):
        return np.sqrt(np.asarray(Z.multiply(Z).mean(0)).ravel())
    return Z.std(0)
