"""probes: the small classifiers that stand behind a projection when it is evaluated.

nearest class mean, k nearest neighbours among sampled rows, and a linear one (multinomial logistic regression; for
several labels a row one least-squares solve for all labels). Each is fitted on projections of the same rows and
predicts codes, or an indicator with scores in [−1, 1].

Cost of a fit on r sampled rows, p components, k labels: O(r p) mean and neighbours, O(r p k) an iteration linear; of a
prediction: O(p k), O(r p), O(p k) a row.

Why this way: they are how the papers use a projection. They are fitted anew whenever the projection is solved anew, on
rows kept in full, because a classifier fitted on an older projection's coordinates says nothing about the new ones.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression, Ridge

from stream_dr.rows.block import Rows
from stream_dr.solve.nearest_mean import means_by_class, nearest, squared_distances


class Sample(NamedTuple):
    """What probes are fitted on.

    Z: (rows, p) projected rows, dense or CSR. y: (rows,) codes or (rows, labels) bool. means: (labels, p) projected
    class means, or None. others: (labels, p) means of the rows without each label, for several labels a row. labels:
    how many.
    """

    Z: Rows
    y: np.ndarray
    means: np.ndarray | None
    others: np.ndarray | None
    labels: int


class Probe(Protocol):
    """A classifier: `predict` gives codes (rows,), or scores (rows, labels) in [−1, 1], above 0 where a label is
    meant."""

    def predict(self, Z: Rows) -> np.ndarray:
        """Codes or scores of projected rows (rows, p)."""
        ...


class NearestMean:
    """The nearest class mean; for several labels, whether the mean with a label is nearer than that without it."""

    def __init__(self, sample: Sample) -> None:
        self._multi = sample.y.ndim == 2
        if sample.means is not None:
            self._means, self._others = sample.means, sample.others
        else:
            self._means, self._others = sample_means(sample)

    def predict(self, Z: Rows) -> np.ndarray:
        """See Probe."""
        if not self._multi or self._others is None:
            return nearest(Z, self._means)
        near = squared_distances(Z, self._means)
        far = squared_distances(Z, self._others)
        with np.errstate(invalid="ignore"):
            scores = (np.sqrt(far) - np.sqrt(near)) / (np.sqrt(far) + np.sqrt(near))
        return np.where(np.isfinite(scores), scores, -1.0)


class Neighbours:
    """The k nearest sampled rows: their commonest label (the nearer one's where equal), or their share with a label."""

    def __init__(self, sample: Sample, k: int) -> None:
        self._sample, self._k = sample, min(k, len(sample.y))

    def predict(self, Z: Rows) -> np.ndarray:
        """See Probe."""
        apart = squared_distances(Z, self._sample.Z)
        near = np.argpartition(apart, self._k - 1, axis=1)[:, : self._k]
        near = np.take_along_axis(near, np.argsort(np.take_along_axis(apart, near, 1), axis=1, kind="stable"), 1)
        voters = self._sample.y[near]
        if self._sample.y.ndim == 2:
            return 2.0 * voters.mean(1) - 1.0
        votes = np.zeros((len(voters), self._sample.labels))
        for rank in range(self._k):
            votes[np.arange(len(voters)), voters[:, rank]] += 1.0 - rank * 1e-6
        return np.argmax(votes, axis=1)


class LinearProbe:
    """Logistic regression on standardised coordinates; least squares on ±1 for several labels a row."""

    def __init__(self, sample: Sample) -> None:
        self._scale = 1.0 / np.where((size := _deviation(sample.Z)) > 0, size, 1.0)
        self._multi, self._labels = sample.y.ndim == 2, sample.labels
        self._only: int | None = None
        Z = self._scaled(sample.Z)
        if self._multi and Z.shape[1]:
            self._model: Any = Ridge(alpha=1.0).fit(Z, 2.0 * sample.y - 1.0)
        elif self._multi:
            self._only = -1
        elif Z.shape[1] == 0 or len(np.unique(sample.y)) < 2:
            self._only = int(np.argmax(np.bincount(sample.y)))
        else:
            self._model = LogisticRegression(max_iter=1_000).fit(Z, sample.y)

    def predict(self, Z: Rows) -> np.ndarray:
        """See Probe."""
        if self._only is not None:
            return np.full((Z.shape[0], self._labels) if self._multi else Z.shape[0], self._only)
        found = np.asarray(self._model.predict(self._scaled(Z)))
        return np.clip(found.reshape(Z.shape[0], -1), -1.0, 1.0) if self._multi else found

    def _scaled(self, Z: Rows) -> Rows:
        return Z @ sp.diags(self._scale) if sp.issparse(Z) else Z * self._scale


def make_probe(name: str, sample: Sample, neighbours: int) -> Probe:
    """The probe called "mean", "knn" or "linear", fitted."""
    if name == "mean":
        return NearestMean(sample)
    return Neighbours(sample, neighbours) if name == "knn" else LinearProbe(sample)


def sample_means(sample: Sample) -> tuple[np.ndarray, np.ndarray | None]:
    """Class means of the sampled rows, and for several labels the means of the rows without each; NaN where there is
    none."""
    if sample.y.ndim == 1:
        return means_by_class(sample.Z, sample.y, sample.labels), None
    sums, counts = np.asarray(sample.Z.T @ sample.y.astype(float)).T, sample.y.sum(0)[:, None]
    total, rows = np.asarray(sample.Z.sum(0)).ravel(), len(sample.y)
    with np.errstate(invalid="ignore", divide="ignore"):
        return sums / counts, (total - sums) / (rows - counts)


def _deviation(Z: Rows) -> np.ndarray:
    """(p,) root mean square of each coordinate: about its mean where dense, about 0 where sparse (no shift is
    applied)."""
    if sp.issparse(Z):
        return np.sqrt(np.asarray(Z.multiply(Z).mean(0)).ravel())
    return Z.std(0)
