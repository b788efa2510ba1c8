"""SPCA: supervised principal component analysis with a kernel on the targets."""

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
    """Kinds of targets that SPCA's kernel is defined on.

    Read from the class itself, all of them.
    """

    def __get__(self, spca: Any, owner: type) -> tuple[str, ...]:
        """Return the kinds of targets for the kernel.

        - delta: class.
        - rbf: class (for which it is the delta kernel up to a factor) and continuous.
        - linear: all.
        """
        kernel = "linear" if spca is None else spca.kernel
        return {"delta": ("class",), "rbf": ("class", "continuous")}.get(
            str(kernel), ("class", "multilabel", "continuous")
        )


@dataclass(eq=False, repr=False)
class SPCA(DependenceMethod):
    """Find the directions of largest dependence (HSIC) on the targets.

    Supervised PCA (Barshan et al.). It reads only the cross-scatter of rows and targets, so it
    works at any number of features.

    >>> from stream_dr import SPCA
    >>> SPCA().fit([[0.0, 1.0], [0.0, 2.0], [4.0, 1.5]], ["a", "a", "b"]).components_.round(3).tolist()
    [[1.0, 0.0]]

    Targets are one or several labels a row, or numbers. c classes give at most c − 1 directions, k
    columns of numbers k. Merges and unlearns.

    Parameters
    ----------
    kernel : {"linear", "delta", "rbf"}, default "linear"
        Kernel on the targets, see Notes.
    sigma : float > 0, default 1.0
        Width of the "rbf" kernel, in the unit of the targets.
    n_fourier : int ≥ 1, default 1000
        Number of random Fourier features of the "rbf" kernel.
    null_space : bool, default False
        Fill up to n_components with orthonormal directions of eigenvalue 0, drawn from
        random_state, as an eigensolver does that is asked for so many. They keep distances between
        rows and depend on no target. False leaves them out.

    Notes
    -----
    Components are the left singular vectors of Cxy, the cross-scatter of rows and targets. They
    are orthonormal. Eigenvalues are those of Cxy Cxyᵀ [SRP §2; mathematics §2]. The kernel on the
    targets y is:

    - "linear": y yᵀ for numbers. On one label a row that is the delta kernel. On several labels a
      row it is the linear kernel on the indicator, which is *not* the delta kernel on label sets
      (50° apart on real data).
    - "delta": the same as "linear" for one label a row. Refused otherwise.
    - "rbf": exp(−|y − y'|²/(2 sigma²)) on numbers, by `n_fourier` random Fourier features drawn
      from random_state. This is an approximation (14 / 3 / 0.6 % off at 100 / 1,000 / 10,000
      features). n_components=None means 10 then.

    PCA is the case L = I, every row a class of its own. With random numbers as targets, p columns
    of ±1 drawn for every row, SPCA is randomised PCA with p directions, from one pass and without
    Cxx.

    State: O(d·(k + 2)) numbers for d features and k labels, columns or Fourier features. Learning
    a row costs O(its entries × its labels or k), solving O(d k²). Cxx is not needed.
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
        """Return the indicator, or Fourier features with kernel="rbf".

        With the indicator, numbers stay as they are.
        """
        return (
            Fourier(self.n_fourier, float(self.sigma), self.random_state or 0) if self.kernel == "rbf" else "indicator"
        )

    def directions(self, moments: Moments, state: MomentState) -> Directions:
        """Return the left singular vectors of Cxy, none if it is only rounding."""
        vectors, values = moments.reduced(moments.cross, moments.target_size)
        most = 10 if self.kernel == "rbf" and self.n_components is None else len(values)
        vectors, values = vectors[:, :most], values[:most] ** 2
        more = min(self.n_components or 0, len(vectors)) - len(values)
        if not self.null_space or more <= 0:
            return vectors, values
        return np.hstack([vectors, self._without_dependence(vectors, more)]), np.append(values, np.zeros(more))

    def _without_dependence(self, vectors: np.ndarray, count: int) -> np.ndarray:
        """Return random orthonormal directions orthogonal to `vectors`, (features, count)."""
        drawn = np.random.default_rng(self.random_state or 0).normal(size=(len(vectors), count))
        # Twice, because the first time leaves some of `vectors` by rounding.
        for _ in range(2):
            drawn = np.linalg.qr(drawn - vectors @ (vectors.T @ drawn))[0]
        return drawn
