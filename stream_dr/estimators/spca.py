"""SPCA (supervised principal component analysis), with a kernel of the targets."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from stream_dr.estimators.fitting.closed_form import ClosedForm, Directions
from stream_dr.estimators.fitting.dependence import DependenceMethod
from stream_dr.estimators.fitting.moments import Moments
from stream_dr.estimators.fitting.parameter_checks import check_choice, check_number, check_positive_int
from stream_dr.statistics.moments.accumulator import MomentState
from stream_dr.statistics.moments.encoding import Encoding, Fourier


class KernelKinds:
    """Descriptor that returns the kinds of targets that SPCA's kernel is defined for.

    Read from the class, it returns all kinds.
    """

    def __get__(self, spca: Any, owner: type) -> tuple[str, ...]:
        """Return the kinds of targets for the estimator's kernel.

        - delta: labels, one a row ("class").
        - rbf: labels, one a row (where rbf is the delta kernel up to a factor), and numbers.
        - linear: all kinds.
        """
        kernel = "linear" if spca is None else spca.kernel
        return {"delta": ("class",), "rbf": ("class", "continuous")}.get(
            str(kernel), ("class", "multilabel", "continuous")
        )


@dataclass(eq=False, repr=False)
class SPCA(DependenceMethod):
    """Find the directions of largest dependence (HSIC) on the targets.

    Supervised PCA (Barshan et al.). HSIC is the Hilbert-Schmidt independence criterion. The method
    needs only the cross-scatter of rows and targets, so it works with any number of features.

    >>> from stream_dr import SPCA
    >>> SPCA().fit([[0.0, 1.0], [0.0, 2.0], [4.0, 1.5]], ["a", "a", "b"]).components_.round(3).tolist()
    [[1.0, 0.0]]

    Targets are one or several labels a row, or numbers. With one label a row and c classes there
    are at most c − 1 directions. With k columns of numbers there are at most k. Merges and
    unlearns.

    Parameters
    ----------
    kernel : {"linear", "delta", "rbf"}, default "linear"
        Kernel of the targets, see Notes.
    sigma : float > 0, default 1.0
        Width of the "rbf" kernel, in the unit of the targets.
    n_fourier : int ≥ 1, default 1000
        Number of random Fourier features of the "rbf" kernel.
    null_space : bool, default False
        Add directions of eigenvalue 0 until there are n_components, as an eigensolver does. The
        added directions are orthonormal, random (drawn from random_state) and depend on no target.
        They preserve distances between rows. False leaves them out.

    Notes
    -----
    Components are the left singular vectors of Cxy, the cross-scatter of rows and targets. They
    are orthonormal. Eigenvalues are those of Cxy Cxyᵀ [SRP §2; mathematics §2]. The kernel of the
    targets y is:

    - "linear": y yᵀ for numbers. For one label a row this is the delta kernel. For several labels
      a row it is the linear kernel of their indicators, which is *not* the delta kernel of label
      sets (directions 50° apart on real data).
    - "delta": 1 for equal labels, else 0. It is "linear" for one label a row. Other targets raise
      an error.
    - "rbf": exp(−|y − y'|²/(2 sigma²)) for numbers. It is approximated by `n_fourier` random
      Fourier features drawn from random_state. The error is 14 / 3 / 0.6 % with 100 / 1,000 /
      10,000 features. With this kernel, n_components=None means 10.

    If every row is a class of its own, the kernel matrix of the targets is I and SPCA is PCA. If
    the targets are p columns of random ±1, SPCA is randomised PCA with p directions, in one pass
    and without a scatter matrix of the rows.

    State: O(d·(k + 2)) numbers for d features and k labels, columns or Fourier features. Learning
    a row costs O(its entries × its labels or k), solving O(d k²). The scatter matrix of the rows
    is not needed.
    """

    target_kinds: ClassVar[Any] = KernelKinds()
    fixed: ClassVar[tuple[str, ...]] = (*ClosedForm.fixed, "kernel", "sigma", "n_fourier", "random_state")
    needs_scatter: ClassVar[bool] = False

    kernel: Literal["linear", "delta", "rbf"] = "linear"
    sigma: float = 1.0
    n_fourier: int = 1000
    _: KW_ONLY
    null_space: bool = False

    def check_parameters(self) -> None:
        """Raise InvalidParameter when a parameter is outside its range."""
        super().check_parameters()
        check_choice("kernel", self.kernel, ("linear", "delta", "rbf"))
        check_number("sigma", self.sigma, low=0.0, open_low=True)
        check_positive_int("n_fourier", self.n_fourier)
        check_choice("null_space", self.null_space, (False, True))

    def target_encoding(self) -> Encoding:
        """Return how targets become the columns of the cross-scatter.

        With kernel="rbf" they become random Fourier features. Otherwise labels become indicators,
        and numbers stay as they are.
        """
        return (
            Fourier(self.n_fourier, float(self.sigma), self.random_state or 0) if self.kernel == "rbf" else "indicator"
        )

    def directions(self, moments: Moments, state: MomentState) -> Directions:
        """Return the left singular vectors of Cxy and the eigenvalues of Cxy Cxyᵀ.

        Cxy is the cross-scatter of rows and targets. If Cxy is only rounding error, there are no
        directions.
        """
        vectors, values = moments.reduced(moments.cross, moments.target_size)
        most = 10 if self.kernel == "rbf" and self.n_components is None else len(values)
        vectors, values = vectors[:, :most], values[:most] ** 2
        more = min(self.n_components or 0, len(vectors)) - len(values)
        if not self.null_space or more <= 0:
            return vectors, values
        return np.hstack([vectors, self._without_dependence(vectors, more)]), np.append(values, np.zeros(more))

    def _without_dependence(self, vectors: np.ndarray, count: int) -> np.ndarray:
        """Return random orthonormal directions (features, count) orthogonal to `vectors`.

        count: number of directions.
        """
        drawn = np.random.default_rng(self.random_state or 0).normal(size=(len(vectors), count))
        # One subtraction leaves a rounding error along `vectors`, and the second removes it.
        for _ in range(2):
            drawn = np.linalg.qr(drawn - vectors @ (vectors.T @ drawn))[0]
        return drawn
