"""SRP: supervised random projections."""

import hashlib
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal

import numpy as np

from stream_dr.estimators.fitting.closed_form import ClosedForm, Directions
from stream_dr.estimators.fitting.dependence import DependenceMethod
from stream_dr.estimators.fitting.moments import Moments
from stream_dr.estimators.fitting.parameter_checks import check_choice, check_number, check_positive_int
from stream_dr.statistics.moments.accumulator import MomentState
from stream_dr.statistics.moments.encoding import Encoding, Fourier
from stream_dr.targets.targets import Label


@dataclass(eq=False, repr=False)
class SRP(DependenceMethod):
    """Project rows onto random combinations of directions that depend on the targets.

    Supervised random projections: SPCA without an eigenproblem, available as soon as there is a
    row. Signs are drawn from (random_state, label), so states of several machines agree and merge.

    >>> from stream_dr import SRP
    >>> SRP(n_components=2).fit([[0.0, 1.0], [0.0, 2.0], [4.0, 1.5]], ["a", "a", "b"]).components_.shape
    (2, 2)

    Targets are one or several labels a row, or numbers. `transform` does not centre (`mean_` is
    zero), and components are not orthonormal. More components than classes only average the
    randomness. `gamma` and `scatter` have no effect. Merges and unlearns.

    Parameters
    ----------
    n_components : int ≥ 1, default 10
        Number of random combinations of the targets.
    sigma : float > 0, default 1.0
        Width of the Gaussian kernel on continuous targets, in their unit.
    scaling : {"unit", "source"}, default "unit"
        With "unit", W = (Cxy / N) R, which does not grow with N. With "source", W = Cxy R with Cxy
        a sum over rows, as in the paper.

    Notes
    -----
    W = Cxy R [SRP eq. 13; mathematics §2]. Cxy is the cross-scatter of rows and targets. R holds
    random signs ±1/√p, one row per label, so that E[R Rᵀ] = I and E[W Wᵀ] = Cxy Cxyᵀ, the matrix
    that SPCA decomposes. The matrix rank of W is at most min(p, c − 1) for c classes. W has no
    eigenvalues: `eigenvalues_` are the squared lengths of the columns of Cxy R, in their order.

    Continuous targets go through p random Fourier features ψ(y) of a Gaussian kernel of width
    `sigma`, and W = Cxψ. Several labels a row use the linear kernel on the indicator.

    With one label a row the columns of Cxy sum to zero. So a component whose c signs all agree (a
    chance of 1 in 2^(c−1)) would be zero. Its signs are drawn again until they differ, and R is
    scaled by √(1 − 2^(1−c)), which keeps E[W Wᵀ] = Cxy Cxyᵀ (see `differing_signs`). R then
    depends on the set of labels seen. With a new label the scale changes, and components that were
    drawn again may go back to their first signs. With two classes all components are ± the
    difference of the class means, one direction whatever p is.

    Without targets, L = I of [SRP §2.2] is randomised PCA. `SPCA` learns it from random numbers as
    targets (see there).

    State: O(d·(k + 2)) numbers for d features and k labels or p Fourier features. Learning a row
    costs O(its entries × its labels), solving O(d k p). Cxx is not needed.
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
        check_number("sigma", self.sigma, low=0.0, open_low=True)
        check_choice("scaling", self.scaling, ("unit", "source"))

    def target_encoding(self) -> Encoding:
        """Return n_components Fourier features, for numbers as targets.

        Labels are learned by their indicator.
        """
        return Fourier(int(self.n_components or 10), float(self.sigma), self.random_state or 0)

    def directions(self, moments: Moments, state: MomentState) -> Directions:
        """Return Cxy R, or Cxψ, and no direction if Cxy is only rounding."""
        cross = moments.cleaned(moments.cross, moments.target_size)
        if not cross.any():
            return cross[:, :0], np.zeros(0)
        if moments.labelled:
            labels = [label for label, there in zip(state.labels, moments.present, strict=True) if there]
            draw = differing_signs if state.target_kind == "class" else random_signs
            cross = cross @ draw(labels, int(self.n_components or 10), self.random_state or 0)
        return cross, (cross**2).sum(axis=0)

    def scale_loadings(self, loadings: np.ndarray, moments: Moments, solution: str) -> np.ndarray:
        """Return loadings of the covariances Cxy / N, or of the sums."""
        return loadings / moments.weight if self.scaling == "unit" and moments.weight > 0 else loadings

    def centre(self, moments: Moments) -> np.ndarray:
        """Return zeros, since rows are projected as they are."""
        return np.zeros_like(moments.mean)


def differing_signs(labels: Sequence[Label], p: int, seed: int) -> np.ndarray:
    """Return R (labels, p) for one label a row.

    Its columns are those of `random_signs`, none with equal signs, centred and scaled. A column of
    equal signs takes the next draw of its own (seed, label) bits until they differ, so it depends
    on the set of labels, not on their order. For fewer than two labels R is zero. Costs O(labels ·
    p).

    If signs differ, E[r_i r_j] = −(1/p) / (2^(c−1) − 1) for i ≠ j by symmetry. So E[H R Rᵀ H] = H
    / (1 − 2^(1−c)) with H the centring over c labels. The scale √(1 − 2^(1−c)) makes that H, and
    Cxy H = Cxy.
    """
    signs, draw = random_signs(labels, p, seed), 0
    if len(labels) < 2:
        return np.zeros_like(signs)
    while (equal := (signs == signs[0]).all(axis=0)).any():
        draw += 1
        signs[:, equal] = random_signs(labels, p, seed, draw)[:, equal]
    centred: np.ndarray = signs - signs.mean(axis=0)
    return centred * np.sqrt(1.0 - 2.0 ** (1 - len(labels)))


def random_signs(labels: Sequence[Label], p: int, seed: int, draw: int = 0) -> np.ndarray:
    """Return signs (labels, p) of ±1/√p.

    A label's row depends only on the seed, the label and the number of the draw.
    """
    redrawn = f":{draw}" if draw else ""
    rows = [_bits(f"{seed}{redrawn}:{type(label).__name__}:{label}", p) for label in labels]
    return (2.0 * np.array(rows, dtype=np.float64).reshape(len(rows), p) - 1.0) / np.sqrt(p)


def _bits(key: str, p: int) -> np.ndarray:
    """Return p bits of SHAKE-256 of the key.

    They are the same on every machine and in every version of numpy.
    """
    return np.unpackbits(np.frombuffer(hashlib.shake_256(key.encode()).digest((p + 7) // 8), dtype=np.uint8))[:p]
