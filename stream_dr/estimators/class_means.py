"""ClassMeans: the projection onto the span of the class means, and the nearest-mean classifier on it."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from stream_dr.estimators.fitting.closed_form import Directions
from stream_dr.estimators.fitting.linear_classifier import LinearClassifier, class_readout
from stream_dr.estimators.fitting.moments import Moments
from stream_dr.readout import Readout
from stream_dr.solve.spectral import EPS


@dataclass(eq=False, repr=False)
class ClassMeans(LinearClassifier):
    """Principal directions between classes: eigenvectors of Sb = Cxy diag(1/n_j) Cxyᵀ / N, by priors [mathematics §2].

    Orthonormal, at most (classes − 1) of them for one label a row and one a label for several; exact at every row, since
    Cxx is not needed (it is SKM at a = 1, eigenvalues halved). `predict` gives the label of the nearest class mean in
    the whole space, whatever n_components (of several labels a row the one label nearest); on all components the
    distances differ by the same amount for every class. `predict_proba` takes classes to be equally frequent and to vary
    alike in all directions, by the mean within-class variance: then the nearest mean is the most probable class, and
    `decision_function` is linear.

    Targets: one or several labels a row. State: O(d·(k + 2)). Learning a row costs O(its entries); solving O(d k²);
    predicting a row O(k · its entries). Merges and unlearns.

    Left out: the within-class spread (use LDA) and a shrinkage of means.

    Attributes
    ----------
    centroids_ : ndarray (classes, features), float64
        Class means, in the order of `classes_`; of mapped features with a feature map.

    >>> from stream_dr import ClassMeans
    >>> means = ClassMeans().fit([[0.0, 1.0], [0.0, 2.0], [4.0, 1.0]], ["a", "a", "b"])
    >>> means.predict([[3.0, 0.0]]).tolist()
    ['b']
    """

    limit: ClassVar[str] = "there are at most as many as classes less 1, and as features that vary"
    target_kinds: ClassVar[tuple[str, ...]] = ("class", "multilabel")
    needs_scatter: ClassVar[bool] = False

    def directions(self, moments: Moments, state: Any) -> Directions:
        """Eigenvectors and eigenvalues of Sb."""
        vectors, values = moments.between()
        return vectors, values**2

    def readout(self, moments: Moments, loadings: np.ndarray, eigenvalues: np.ndarray) -> Readout:
        """Equal priors, and one variance in all directions: the mean within-class variance."""
        offsets = moments.offsets
        centres = offsets.T @ (loadings / moments.scale[:, None])
        within = float(moments.diagonal.sum()) - float((offsets**2).sum(axis=0) @ moments.label_weights)
        smallest = EPS * float(moments.diagonal.sum())
        variance = within / (moments.weight * len(offsets)) if within > smallest else 1.0
        classes = len(moments.labels)
        return class_readout(
            moments, centres, np.full(len(eigenvalues), variance), np.full(classes, 1.0 / max(classes, 1))
        )

    @property
    def centroids_(self) -> np.ndarray:
        """(classes, features) float64 class means, in the order of `classes_`; of mapped features with a feature map."""
        moments = self.moments(self.state_)
        means = moments.mean + (moments.offsets / moments.scale[:, None]).T
        return means[sorted(range(len(means)), key=lambda at: moments.labels[at])]
