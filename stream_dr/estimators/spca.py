"""SPCA: supervised principal component analysis with a kernel on the targets."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from stream_dr.estimators.fitting.closed_form import ClosedForm, Directions
from stream_dr.estimators.fitting.dependence import DependenceMethod
from stream_dr.estimators.fitting.moments import Moments
from stream_dr.estimators.fitting.parameter_checks import check_choice, check_number, check_positive_int
from stream_dr.statistics.moments.encoding import Fourier


class KernelKinds:
    """Kinds of targets SPCA's kernel is defined on; of the class itself, all of them."""

    def __get__(self, spca: Any, owner: type) -> tuple[str, ...]:
        """Delta: class; RBF: class (where it is the delta kernel up to a factor) and continuous; linear: all."""
        kernel = "linear" if spca is None else spca.kernel
        return {"delta": ("class",), "rbf": ("class", "continuous")}.get(
            str(kernel), ("class", "multilabel", "continuous")
        )


@dataclass(eq=False, repr=False)
class SPCA(DependenceMethod):
    """Supervised PCA (Barshan et al.): directions of largest dependence (HSIC) on the targets [SRP §2; mathematics §2].

    Left singular vectors of Cxy, orthonormal; eigenvalues are those of Cxy Cxyᵀ. `kernel` is the one on the targets:

    - "linear": y yᵀ for numbers; on one label a row that is the delta kernel; on several labels a row it is the linear
      kernel on the indicator, which is *not* the delta kernel on label sets (50° apart on real data).
    - "delta": the same as "linear" for one label a row; refused otherwise.
    - "rbf": exp(−|y − y'|²/(2 sigma²)) on numbers, by `n_fourier` random Fourier features drawn from random_state: an
      approximation (14 / 3 / 0.6 % off at 100 / 1,000 / 10,000); n_components=None means 10 then.

    Classes c give at most c − 1 directions, k columns of numbers k. PCA is L = I, every row a class of its own; with random
    numbers as targets, p columns of ±1 drawn for every row, SPCA is randomised PCA with p directions, from one pass and
    without Cxx.

    Targets: one or several labels a row, or numbers. State: O(d·(k + 2)) for k labels, columns or Fourier features.
    Learning a row costs O(its entries × its labels or k); solving O(d k²). Cxx is not needed. Merges and unlearns.

    Parameters
    ----------
    kernel : {"linear", "delta", "rbf"}, default "linear"
        The kernel on the targets; see above.
    sigma : float > 0, default 1.0
        Width of the "rbf" kernel, in the unit of the targets.
    n_fourier : int ≥ 1, default 1000
        Random Fourier features of the "rbf" kernel.
    null_space : bool, default False
        Fill up to n_components with orthonormal directions of eigenvalue 0, drawn from random_state, as an eigensolver does
        that is asked for so many: they keep distances between rows and depend on no target. False: they are left out.
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

    def target_encoding(self) -> Any:
        """Labels as their indicator; numbers as they are, or as Fourier features with kernel="rbf"."""
        return (
            Fourier(self.n_fourier, float(self.sigma), self.random_state or 0) if self.kernel == "rbf" else "indicator"
        )

    def directions(self, moments: Moments, state: Any) -> Directions:
        """Left singular vectors of Cxy; none where it is rounding."""
        vectors, values = moments.reduced(moments.cross, moments.target_size)
        most = 10 if self.kernel == "rbf" and self.n_components is None else len(values)
        vectors, values = vectors[:, :most], values[:most] ** 2
        more = min(self.n_components or 0, len(vectors)) - len(values)
        if not self.null_space or more <= 0:
            return vectors, values
        return np.hstack([vectors, self._without_dependence(vectors, more)]), np.append(values, np.zeros(more))

    def _without_dependence(self, vectors: np.ndarray, more: int) -> np.ndarray:
        """So many orthonormal directions (features, more), drawn at random among those orthogonal to `vectors`."""
        drawn = np.random.default_rng(self.random_state or 0).normal(size=(len(vectors), more))
        for _ in range(2):  # once more, for what rounding left of them
            drawn = np.linalg.qr(drawn - vectors @ (vectors.T @ drawn))[0]
        return drawn
