"""SPCA (supervised principal component analysis), with a target kernel.

SPCA and SRP find target-dependent directions, and share the base class DependenceMethod.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from stream_dr.errors import InvalidRows
from stream_dr.estimators.fitting.closed_form import ClosedForm, Directions
from stream_dr.estimators.fitting.moments import Moments
from stream_dr.estimators.fitting.parameters import check_choice, check_number_in_range, check_positive_int
from stream_dr.statistics.moments.encoding import Encoding, Fourier
from stream_dr.statistics.moments.state import MomentState


class DependenceMethod(ClosedForm):
    """Base class of SPCA and SRP, with the attribute `hsic_`.

    Both methods look for directions that depend on the targets.

    Attributes
    ----------
    hsic_ : float
        Hilbert-Schmidt independence criterion (HSIC) of the projected rows and the targets, over
        the rows learned [SRP eq. 1]. See `stream_dr.hsic`.
    """

    eigenvalue_growth: ClassVar[int] = 2

    @property
    def hsic_(self) -> float:
        """Hilbert-Schmidt independence criterion of projected rows and targets, ≥ 0.

        Raises InvalidRows if the weight of the rows is at most 1. See `stream_dr.hsic` for the
        definition.
        """
        projection = self.linear_projection()
        moments = self.moments(self.state_)
        return hsic_from_moments(moments, (projection.loadings / moments.scale[:, None]).T @ moments.cross)


def hsic_from_moments(moments: Moments, projected_cross_scatter: np.ndarray) -> float:
    """Return the Hilbert-Schmidt independence criterion of projected rows and targets.

    moments: centred sums of the rows, with the weight of the rows.
    projected_cross_scatter: (components, targets), cross-scatter of projected rows and targets.
    """
    # Compute the criterion tr(K H L H) / (N − 1)², for the weight N of the rows.
    # K and L are the linear kernels of projected rows and targets, and H is the centring matrix.
    # The trace is the sum of the squared entries of the cross-scatter.
    check_weight_above_one(moments.weight)
    return float((projected_cross_scatter**2).sum() / (moments.weight - 1.0) ** 2)


def check_weight_above_one(total_weight: float) -> None:
    """Check that the rows' total weight is above 1.

    Raises InvalidRows if it is not. The Hilbert-Schmidt independence criterion divides by the
    total weight minus 1.
    """
    if total_weight <= 1.0:
        raise InvalidRows(f"HSIC divides by (n − 1)²; the rows' weight is {total_weight:g} in all. Give two or more.")


class KernelTargetKinds:
    """Descriptor behind `SPCA.target_kinds`, the kinds of targets allowed.

    The kinds depend on the estimator's parameter `kernel`. The class itself, without an estimator,
    has all kinds.
    """

    def __get__(self, spca: Any, owner: type) -> tuple[str, ...]:
        """Return the kinds of targets that the estimator's kernel allows.

        - The kernel "delta" allows one label a row ("class").
        - The kernel "rbf" allows one label a row ("class") or numbers ("continuous").
        - The kernel "linear" allows all kinds.

        spca: SPCA estimator whose attribute is read. None if it is read from the class, which
            allows all kinds.
        owner: the class. Ignored.
        """
        kernel = "linear"
        if spca is not None:
            kernel = spca.kernel
        every = ("class", "multilabel", "continuous")
        return {"delta": ("class",), "rbf": ("class", "continuous")}.get(str(kernel), every)


@dataclass(eq=False, repr=False)
class SPCA(DependenceMethod):
    """Find the directions of largest dependence on the targets.

    Supervised PCA (Barshan et al.). The dependence is measured by the Hilbert-Schmidt independence
    criterion (HSIC). The method needs only the cross-scatter of rows and targets, so it works with
    any number of features.

    >>> from stream_dr import SPCA
    >>> SPCA().fit([[0.0, 1.0], [0.0, 2.0], [4.0, 1.5]], ["a", "a", "b"]).components_.round(3).tolist()
    [[1.0, 0.0]]

    Targets are one or several labels a row, or numbers. With one label a row there are at most
    (classes − 1) components. With k columns of numbers there are at most k components. States can
    be merged, and rows can be unlearned.

    Parameters
    ----------
    kernel : {"linear", "delta", "rbf"}, default "linear"
        Kernel of the targets, see Notes.
    sigma : float > 0, default 1.0
        Width of the "rbf" kernel, in the unit of the targets.
    n_fourier : int ≥ 1, default 1000
        Number of random Fourier features of the "rbf" kernel.
    null_space : bool, default False
        If true, add random directions until there are n_components. The added directions are
        orthonormal, have eigenvalue 0 and do not depend on the targets. Like all random
        projections, they preserve distances between rows. `random_state` is their seed.

    Notes
    -----
    Components are the left singular vectors of Cxy (features, targets), the cross-scatter of rows
    and targets. `eigenvalues_` are the eigenvalues of Cxy Cxyᵀ [SRP §2; mathematics §2]. The
    kernel of two targets y and y' is:

    - "linear": the product of the numbers y and y'. For one label a row this is the delta kernel.
      For several labels a row it is the number of common labels, which is *not* the delta kernel
      of the sets of labels.
    - "delta": 1 for equal labels, 0 for different labels. It needs one label a row. "linear" then
      is the same kernel.
    - "rbf": exp(−|y − y'|²/(2 sigma²)) for numbers. The kernel is approximated by `n_fourier`
      random Fourier features, whose seed is `random_state`. The more features, the smaller the
      error. With this kernel, n_components=None means 10.

    If every row is a class of its own, SPCA is PCA. If the targets are p columns of random ±1,
    SPCA is randomised PCA with p components, in one pass and without a scatter matrix of the rows.

    The state has O(d·(k + 2)) numbers for d features and k labels, columns of numbers or Fourier
    features. Learning a row costs O(its entries × k), or for labels O(its entries × its labels).
    Solving costs O(d k²). The scatter matrix of the rows is not needed.
    """

    target_kinds: ClassVar[Any] = KernelTargetKinds()
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
        check_number_in_range("sigma", self.sigma, low=0.0, exclude_low=True)
        check_positive_int("n_fourier", self.n_fourier)
        check_choice("null_space", self.null_space, (False, True))

    def target_encoding(self) -> Encoding:
        """Return the encoding of targets as numeric columns.

        With kernel="rbf", numbers become random Fourier features. With another kernel, numbers are
        unchanged. Labels become indicators (columns of 0 and 1).
        """
        if self.kernel != "rbf":
            return "indicator"
        return Fourier(self.n_fourier, float(self.sigma), self.random_state or 0)

    def directions(self, moments: Moments, state: MomentState) -> Directions:
        """Return the directions and eigenvalues, largest eigenvalue first.

        The directions are the left singular vectors of the cross-scatter of rows and targets. The
        eigenvalues are the squared singular values. Singular values that are only rounding error
        are dropped. If `null_space` is true, random directions of eigenvalue 0 may follow.
        """
        vectors, values = moments.significant_left_singular_pairs(moments.cross, moments.uncentred_target_norm)
        # The "rbf" kernel is approximated by many columns of targets, so there may be very many
        # components. By default, return the first ten. With other kernels, return all components,
        # of which there are at most as many as targets or labels.
        if self.kernel == "rbf" and self.n_components is None:
            most = 10
        else:
            most = len(values)
        vectors = vectors[:, :most]
        values = values[:most] ** 2

        # `more` is the number of directions to add to reach n_components, or the number of features
        # if this is smaller. They are added only with the parameter `null_space`.
        more = min(self.n_components or 0, len(vectors)) - len(values)
        if not self.null_space or more <= 0:
            return vectors, values

        # Draw random orthonormal directions that are orthogonal to `vectors`.
        # Subtract the part in the span of `vectors` twice, because once leaves rounding errors.
        drawn = np.random.default_rng(self.random_state or 0).normal(size=(len(vectors), more))
        for _ in range(2):
            drawn = np.linalg.qr(drawn - vectors @ (vectors.T @ drawn))[0]
        return np.hstack([vectors, drawn]), np.append(values, np.zeros(more))
