"""SRP (supervised random projections)."""

import hashlib
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import compress
from typing import ClassVar, Literal

import numpy as np

from stream_dr.batch.targets import Label
from stream_dr.estimators.fitting.closed_form import ClosedForm, Directions
from stream_dr.estimators.fitting.moments import Moments
from stream_dr.estimators.fitting.parameters import check_choice, check_number_in_range, check_positive_int
from stream_dr.estimators.spca import DependenceMethod
from stream_dr.statistics.moments.encoding import Encoding, Fourier
from stream_dr.statistics.moments.state import MomentState


@dataclass(eq=False, repr=False)
class SRP(DependenceMethod):
    """Project rows onto random combinations of target-dependent directions.

    Supervised random projections approximate SPCA without solving an eigenproblem. Each label
    gives one direction. Each component is the sum of the labels' directions with random signs. The
    signs of a label depend only on `random_state` and the label, so states learned on several
    machines can be merged.

    >>> from stream_dr import SRP
    >>> SRP(n_components=2).fit([[0.0, 1.0], [0.0, 2.0], [4.0, 1.5]], ["a", "a", "b"]).components_.shape
    (2, 2)

    Targets are one or several labels a row, or numbers. `transform` does not centre (`mean_` is
    zero), and components are not orthonormal. More components than classes reduce the randomness
    but add no directions. `gamma` and `scatter` have no effect. States can be merged, and rows can
    be unlearned.

    Parameters
    ----------
    n_components : int ≥ 1, default 10
        Number of random combinations of the targets.
    sigma : float > 0, default 1.0
        Width of the Gaussian kernel for targets that are numbers, in the unit of the targets.
    scaling : {"unit", "source"}, default "unit"
        Length of the components. With "unit", the length does not depend on the number of rows.
        With "source", components are sums over the rows, as in the paper, so the length grows with
        the number of rows.

    Notes
    -----
    The components are the columns of W = Cxy R [SRP eq. 13; mathematics §2]. Cxy (features,
    labels) is the cross-scatter of rows and label indicators. R (labels, p) are random signs,
    divided by √p for p components. The expected value of W Wᵀ is Cxy Cxyᵀ, the matrix whose
    eigenvectors are SPCA's components. With scaling="unit", W is also divided by the weight of all
    rows. `eigenvalues_` are the squared lengths of the columns of Cxy R, in the order of the
    columns.

    If the targets are numbers, they are mapped to p random Fourier features of a Gaussian kernel.
    W is then the cross-scatter of rows and these features. For several labels a row, the kernel is
    the linear kernel of the label indicators.

    With one label a row, a component whose signs are all equal would be zero. Such signs are drawn
    again until they differ, and R is scaled such that the expected value stays the same (see
    `centred_scaled_random_signs`). Therefore R depends on the set of labels learned. A new label
    changes the scale, and may change the signs of a component that was drawn again. For c classes
    there are at most c − 1 linearly independent components. With two classes, all components are
    multiples of the difference of the class means.

    Without targets, the method of the paper is randomised PCA [SRP §2.2]. `SPCA` computes
    randomised PCA if the targets are random numbers (see the Notes of `SPCA`).

    The state has O(d·(k + 2)) numbers for d features and k labels or Fourier features. Learning a
    row costs O(its entries × its labels), and solving costs O(d k p). The scatter matrix of the
    rows is not needed.
    """

    target_kinds: ClassVar[tuple[str, ...]] = ("class", "multilabel", "continuous")
    fixed: ClassVar[tuple[str, ...]] = (*ClosedForm.fixed, "n_components", "sigma", "random_state")
    solves_eigenproblem: ClassVar[bool] = False
    needs_scatter: ClassVar[bool] = False

    n_components: int = 10
    sigma: float = 1.0
    _: KW_ONLY
    scaling: Literal["unit", "source"] = "unit"

    def check_parameters(self) -> None:
        """Raise InvalidParameter when a parameter is outside its range."""
        super().check_parameters()
        check_positive_int("n_components", self.n_components)
        check_number_in_range("sigma", self.sigma, low=0.0, exclude_low=True)
        check_choice("scaling", self.scaling, ("unit", "source"))

    def target_encoding(self) -> Encoding:
        """Return the encoding of targets as numeric columns.

        Targets that are numbers become p random Fourier features, one for each of the p components
        (`n_components`, by default 10). Labels always become indicators (columns of 0 and 1).
        """
        return Fourier(int(self.n_components or 10), float(self.sigma), self.random_state or 0)

    def directions(self, moments: Moments, state: MomentState) -> Directions:
        """Return p components (features, p) and their squared lengths (p,).

        The components come from the cross-scatter of rows and targets. If the targets are labels,
        the components are random combinations of its columns. If the targets are numbers, they were
        already encoded as p random columns, so the columns themselves are the components. If the
        cross-scatter is only rounding error, there are no components. Squared lengths take the
        place of eigenvalues.
        """
        # `cross` (features, k) is the cross-scatter of rows and k target columns. Features whose
        # entries are only rounding error are set to 0.
        cross = moments.clear_noisy_features(moments.cross, moments.uncentred_target_norm)
        if not cross.any():
            return cross[:, :0], np.zeros(0)
        if moments.labelled:
            # The columns are those of the labels that have rows (`present`).
            labels = list(compress(state.labels, moments.present))
            # `draw` returns the signs (labels, p). Each label's signs are a hash of the label. With
            # one label a row, the columns of `cross` add up to 0, so signs that are all equal would
            # make a component 0. In this case, draw signs that differ, and centre them.
            if state.target_kind == "class":
                draw = centred_scaled_random_signs
            else:
                draw = scaled_random_signs
            cross = cross @ draw(labels, int(self.n_components or 10), self.random_state or 0)
        return cross, (cross**2).sum(axis=0)

    def scale_loadings(self, loadings: np.ndarray, moments: Moments, solution_kind: str) -> np.ndarray:
        """Return loadings (features, components) at the length that `scaling` requires.

        The loadings are sums over the rows, so their length grows with the number of rows. With
        scaling="unit", they are divided by the weight of all rows, and become means. With
        scaling="source", they do not change, as in the paper.

        solution_kind: ignored.
        """
        if self.scaling == "unit" and moments.weight > 0:
            return loadings / moments.weight
        return loadings

    def centre(self, moments: Moments) -> np.ndarray:
        """Return zeros (features,), because rows are projected without centring."""
        return np.zeros_like(moments.mean)


def centred_scaled_random_signs(labels: Sequence[Label], n_columns: int, seed: int) -> np.ndarray:
    """Return centred and scaled random signs (labels, n_columns).

    Each label has n_columns signs. Use this function if each row has exactly one label. A column
    whose signs are all equal would be zero after centring, so it is drawn again until its signs
    differ.
    The signs of a label do not depend on the order of the labels. For fewer than two labels, the
    result is zero. Costs O(labels · n_columns).

    Let R be the result, H the centring matrix of the c labels, and E the expected value. Without
    scaling, E[R Rᵀ] would be H / (1 − 2^(1−c)), because columns of equal signs are excluded. The
    scale √(1 − 2^(1−c)) makes E[R Rᵀ] equal to H.

    labels: distinct labels.
    n_columns: number of columns.
    seed: seed of the random signs.
    """
    signs = scaled_random_signs(labels, n_columns, seed)
    # The sign of a single label would be zero after centring, however often it is drawn.
    if len(labels) < 2:
        return np.zeros_like(signs)
    # `equal` (n_columns,) is True for columns whose signs are all equal.
    # `draw_number` is the number of the draw, which gives other signs than the draws before.
    draw_number = 0
    while (equal := (signs == signs[0]).all(axis=0)).any():
        draw_number += 1
        signs[:, equal] = scaled_random_signs(labels, n_columns, seed, draw_number)[:, equal]
    scale = np.sqrt(1.0 - 2.0 ** (1 - len(labels)))
    return np.asarray((signs - signs.mean(axis=0)) * scale)


def scaled_random_signs(labels: Sequence[Label], n_columns: int, seed: int, draw_number: int = 0) -> np.ndarray:
    """Return random signs (labels, p), each +1/√p or −1/√p.

    p is `n_columns`. The signs of a label depend only on the label, on `seed` and on
    `draw_number`.

    labels: distinct labels.
    n_columns: number p of signs per label.
    seed: seed of the random signs.
    draw_number: number of the draw. Each number gives other signs.
    """
    # The signs of a label are the bits of a hash of the seed, the number of the draw and the label.
    # The number 0 of the first draw is left out.
    draw = ""
    if draw_number:
        draw = f":{draw_number}"
    rows = []
    for label in labels:
        # The type keeps the labels 1 and "1" apart. A hash is the same on every machine and in
        # every version of numpy. It has one bit for each column, rounded up to whole bytes.
        key = f"{seed}{draw}:{type(label).__name__}:{label}"
        digest = hashlib.shake_256(key.encode()).digest((n_columns + 7) // 8)
        rows.append(np.unpackbits(np.frombuffer(digest, dtype=np.uint8), count=n_columns))
    # Reshape for the case of no labels. A bit 1 becomes the sign +1, and a bit 0 the sign −1.
    bits = np.array(rows, dtype=np.float64).reshape(len(rows), n_columns)
    return (2.0 * bits - 1.0) / float(np.sqrt(n_columns))
