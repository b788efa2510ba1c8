"""ClassMeans, a projection from class means and a nearest-mean classifier."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stream_dr.estimators.fitting.closed_form import Directions
from stream_dr.estimators.fitting.moments import Moments
from stream_dr.estimators.fitting.predictor import LinearClassifier, gaussian_class_readout
from stream_dr.readout import Readout
from stream_dr.solve.spectral import EPS
from stream_dr.statistics.moments.state import MomentState


@dataclass(eq=False, repr=False)
class ClassMeans(LinearClassifier):
    """Project rows onto directions in which class means differ most.

    This is the cheapest supervised projection, because it needs only the class means. It works at
    any number of features, inverts no matrix, and is exact after every row. It is also a
    classifier. `predict` returns the label of the nearest class mean.

    >>> from stream_dr import ClassMeans
    >>> means = ClassMeans().fit([[0.0, 1.0], [0.0, 2.0], [4.0, 1.0]], ["a", "a", "b"])
    >>> means.predict([[3.0, 0.0]]).tolist()
    ['b']

    Use `LDA` instead if features differ in scale or are correlated, because this method ignores
    the variance within classes. Targets are one or several labels a row. With one label a row
    there are at most (classes − 1) components. With several labels a row there are at most as many
    components as labels. States can be merged, and rows can be unlearned.

    Attributes
    ----------
    centroids_ : ndarray (classes, features), float64
        Class means, in the order of `classes_`. With a feature map, the means of the mapped rows.

    Notes
    -----
    The components are the orthonormal eigenvectors of the between-class scatter Sb [mathematics
    §2]. Classes are weighted by their shares of the rows. SKM with a = 1 has the same components
    and twice the eigenvalues.

    `predict` returns the label of the nearest class mean, also if rows have several labels each.
    Distances are measured in the space of all components, also of components that n_components
    excludes. The label is therefore the same as with distances in the space of the features.

    `predict_proba` assumes that all classes are equally frequent and have the same variance in all
    directions. The variance is the mean within-class variance. With this assumption the class of
    the nearest mean is the most probable one.

    The state has O(d·(k + 2)) numbers for d features and k classes. Learning a row costs O(its
    entries), solving costs O(d k²), and predicting a row costs O(k · its entries). Shrinkage of
    the means is not implemented.
    """

    limit: ClassVar[str] = "there are at most as many as classes less 1, and as features that vary"
    target_kinds: ClassVar[tuple[str, ...]] = ("class", "multilabel")
    needs_scatter: ClassVar[bool] = False

    def directions(self, moments: Moments, state: MomentState) -> Directions:
        """Return the eigenvectors and eigenvalues of the between-class scatter."""
        vectors, values = moments.between_eigenpairs()
        return vectors, values**2

    def readout(self, moments: Moments, loadings: np.ndarray, eigenvalues: np.ndarray) -> Readout:
        """Return the nearest-mean classifier of projected rows, a `Readout`.

        The classifier assumes that all classes have the same prior probability and the same
        variance in all directions. The variance is the mean within-class variance.

        loadings: (features, q), loadings of q components.
        eigenvalues: (q,), eigenvalues of the components.
        """
        # `centres` (classes, q) are the class means along the components, minus the mean of all
        # rows. The features in `moments` were multiplied by `scale`, so the loadings are divided.
        centres = moments.project_offsets(loadings / moments.scale[:, None])
        variances = np.full(len(eigenvalues), _within_variance(moments))
        priors = np.full(len(moments.labels), 1.0 / max(len(moments.labels), 1))
        return gaussian_class_readout(moments, centres, variances, priors)

    @property
    def centroids_(self) -> np.ndarray:
        """Class means (classes, features) float64, in the order of `classes_`.

        With a feature map, these are the means of the mapped rows.
        """
        return self.moments(self.state_).class_means


def _within_variance(moments: Moments) -> float:
    """Return the mean variance of a feature within classes, or 1 if it is zero."""
    # These are sums of squares over all rows and features.
    offsets = moments.offsets
    total = float(moments.diagonal.sum())
    between = float((offsets**2).sum(axis=0) @ moments.label_weights)
    within = total - between
    if within > EPS * total:
        return within / (moments.weight * len(offsets))
    # All rows equal their class mean, and `within` is only rounding error.
    return 1.0
