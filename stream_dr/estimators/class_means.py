"""ClassMeans: the projection onto the span of the class means, and the nearest-mean classifier on it."""

from typing import Any, ClassVar

import numpy as np

from stream_dr.errors import NotFitted
from stream_dr.estimators.closed_form import ClosedForm, Directions
from stream_dr.estimators.mapping import through
from stream_dr.estimators.moments import Moments, moments_of
from stream_dr.label_codes import label_array
from stream_dr.projection import Linear


class ClassMeans(ClosedForm):
    """Between-class principal directions: eigenvectors of Sb = Cxy diag(1/n_j) Cxyᵀ / N, weighted by priors [MATH §2].

    Orthonormal, at most (classes − 1) of them for one label a row and one a label for several; exact at every row, since
    Cxx is not needed (it is SKM at a = 1, eigenvalues halved). `predict` gives the label of the nearest class mean in the
    whole space; on all components the distances differ by the same amount for every class.

    Targets: one or several labels a row. State: O(d·(k + 2)). Learning a row costs O(its entries); solving O(d k²);
    predicting a row O(k · its entries). Merges and unlearns.

    Left out: the within-class spread (use LDA) and a shrinkage of means.

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

    def predict(self, X: Any) -> np.ndarray:
        """The label (rows,) of each row's nearest class mean; in the standardised space where `standardize`."""
        self._projection()
        state = self.state_
        moments = moments_of(state, self.standardize)
        if not moments.present.any():
            raise NotFitted("no label has been learned with a weight above 0: pass labelled rows first.")
        offsets = moments.cross / moments.label_weights  # m_j − x̄, in the scaled columns
        projection = Linear(moments.mean, offsets * moments.scale[:, None], moments.label_weights, "exact")
        scores = self._project(through(state, projection), X) - (offsets**2).sum(axis=0) / 2
        return label_array(state.labels)[moments.present][scores.argmax(axis=1)]
