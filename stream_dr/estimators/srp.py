"""SRP (supervised random projections)."""

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

    Supervised random projections approximate SPCA without an eigenproblem. The combinations have
    random signs. The signs of a label follow from random_state and the label alone, so states
    learned on several machines can be merged.

    >>> from stream_dr import SRP
    >>> SRP(n_components=2).fit([[0.0, 1.0], [0.0, 2.0], [4.0, 1.5]], ["a", "a", "b"]).components_.shape
    (2, 2)

    Targets are one or several labels a row, or numbers. `transform` does not centre (`mean_` is
    zero), and components are not orthonormal. More components than classes reduce the randomness
    but add no directions. `gamma` and `scatter` have no effect. Merges and unlearns.

    Parameters
    ----------
    n_components : int ≥ 1, default 10
        Number p of random combinations of the targets.
    sigma : float > 0, default 1.0
        Width of the Gaussian kernel of targets that are numbers, in their unit.
    scaling : {"unit", "source"}, default "unit"
        Length of the components (see Notes). With "unit", W = (Cxy / N) R for N rows, which does
        not grow with N. With "source", W = Cxy R, where Cxy is a sum over rows, as in the paper.

    Notes
    -----
    The components are the columns of W = Cxy R [SRP eq. 13; mathematics §2]. Cxy is the
    cross-scatter of rows and targets. R holds random signs ±1/√p, one row per label, so that
    E[R Rᵀ] = I. Then E[W Wᵀ] = Cxy Cxyᵀ, the matrix that SPCA decomposes. The rank of W is at most
    min(p, c − 1) for c classes. W has no eigenvalues. `eigenvalues_` are the squared lengths of
    the columns of Cxy R, in the order of the columns.

    Targets that are numbers go through p random Fourier features ψ(y) of a Gaussian kernel of
    width `sigma`. W is then the cross-scatter Cxψ of rows and these features. Several labels a row
    use the linear kernel of their indicators.

    With one label a row the columns of Cxy sum to zero. If the c signs of a component were all
    equal (a chance of 1 in 2^(c−1)), the component would be zero. Such signs are drawn again until
    they differ, and R is scaled by √(1 − 2^(1−c)), so that E[W Wᵀ] = Cxy Cxyᵀ still holds (see
    `differing_signs`). Because of this, R depends on the set of labels seen. A new label changes
    the scale, and may return a component to the signs of its first draw. With two classes all
    components are ± the difference of the class means, which is one direction whatever p is.

    Without targets, [SRP §2.2] sets the kernel matrix of the targets to I, which is randomised
    PCA. `SPCA` learns randomised PCA from random numbers as targets (see its Notes).

    State: O(d·(k + 2)) numbers for d features and k labels or p Fourier features. Learning a row
    costs O(its entries × its labels), solving O(d k p). The scatter matrix of the rows is not
    needed.
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
        """Return how targets become the columns of the cross-scatter.

        Numbers become n_components random Fourier features. Labels become indicators, whatever is
        returned here.
        """
        return Fourier(int(self.n_components or 10), float(self.sigma), self.random_state or 0)

    def directions(self, moments: Moments, state: MomentState) -> Directions:
        """Return the components and their squared lengths.

        The components are Cxy R for labels and Cxψ for numbers (see the class's Notes). If Cxy is
        only rounding error, there are no components.
        """
        cross = moments.cleaned(moments.cross, moments.target_size)
        if not cross.any():
            return cross[:, :0], np.zeros(0)
        if moments.labelled:
            labels = [label for label, there in zip(state.labels, moments.present, strict=True) if there]
            draw = differing_signs if state.target_kind == "class" else random_signs
            cross = cross @ draw(labels, int(self.n_components or 10), self.random_state or 0)
        return cross, (cross**2).sum(axis=0)

    def scale_loadings(self, loadings: np.ndarray, moments: Moments, solution: str) -> np.ndarray:
        """Return loadings divided by the weight of all rows with scaling="unit"."""
        return loadings / moments.weight if self.scaling == "unit" and moments.weight > 0 else loadings

    def centre(self, moments: Moments) -> np.ndarray:
        """Return zeros (features,), because rows are projected without centring."""
        return np.zeros_like(moments.mean)


def differing_signs(labels: Sequence[Label], p: int, seed: int) -> np.ndarray:
    """Return the signs R (labels, p) for one label a row, centred and scaled.

    The columns are those of `random_signs`, except that no column has only equal signs. A column
    of equal signs is replaced by the next draw of the same seed and labels until its signs differ.
    So the result depends on the set of labels and not on their order. For fewer than two labels R
    is zero. Costs O(labels · p).

    The scale makes the expected product right. If the signs of a column differ, E[r_i r_j] =
    −(1/p) / (2^(c−1) − 1) for the signs r_i, r_j of two of the c labels, by symmetry. So
    E[H R Rᵀ H] = H / (1 − 2^(1−c)), where H is the centring matrix of c labels. The scale
    √(1 − 2^(1−c)) turns the right side into H, and Cxy H = Cxy.

    p: number of columns.
    seed: seed of the draws.
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
    """Return random signs (labels, p) of ±1/√p.

    The signs of a label depend only on the seed, the label and the number of the draw.

    p: number of signs per label.
    draw: number of the draw, 0 for the first.
    """
    redrawn = f":{draw}" if draw else ""
    rows = [_bits(f"{seed}{redrawn}:{type(label).__name__}:{label}", p) for label in labels]
    return (2.0 * np.array(rows, dtype=np.float64).reshape(len(rows), p) - 1.0) / np.sqrt(p)


def _bits(key: str, p: int) -> np.ndarray:
    """Return the first p bits of the SHAKE-256 hash of the key.

    The bits are the same on every machine and in every version of numpy.
    """
    return np.unpackbits(np.frombuffer(hashlib.shake_256(key.encode()).digest((p + 7) // 8), dtype=np.uint8))[:p]
