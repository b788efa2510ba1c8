"""The Hilbert-Schmidt independence criterion of rows and targets."""

from typing import Literal

from stream_dr.aliases import JsonDict
from stream_dr.estimators.fitting.dependence import hsic_of_sums
from stream_dr.estimators.fitting.inputs import RowsLike, TargetsLike, WeightsLike
from stream_dr.estimators.fitting.moments import moments_of
from stream_dr.estimators.spca import SPCA


def hsic(
    X: RowsLike,
    y: TargetsLike,
    sample_weight: WeightsLike = None,
    *,
    kernel: Literal["linear", "delta", "rbf"] = "linear",
    sigma: float = 1.0,
    feature_map: JsonDict | None = None,
) -> float:
    """Return the Hilbert-Schmidt independence criterion of rows and targets.

    The criterion is tr(K H L H) / (n − 1)² [SRP eq. 1]. K (n, n) is a kernel of the n rows, L (n,
    n) a kernel of the targets, and H = I − 1/n the centring matrix. The criterion is 0 if no mean
    of X depends on y, and grows with the square of X.

    >>> from stream_dr import hsic
    >>> round(hsic([[0.0], [2.0], [0.0], [2.0]], ["a", "b", "a", "b"]), 3)
    0.889
    >>> hsic([[0.0], [2.0]] * 2, ["a", "a", "b", "b"])
    0.0

    Parameters
    ----------
    X : array (rows, features)
        Rows, such as the output of `transform`. K is the linear kernel of the rows, or the kernel
        that `feature_map` approximates.
    y : array (rows,)
        Labels or numbers of the rows. L is `kernel` applied to them.
    sample_weight : array (rows,) or None, default None
        Weights of the rows.
    kernel : {"linear", "delta", "rbf"}, default "linear"
        Kernel of the targets, as for `SPCA`. For labels "linear" is the delta kernel.
    sigma : float > 0, default 1.0
        Width of the "rbf" kernel.
    feature_map : dict or None, default None
        Spec of a feature map that is applied to the rows first.

    Raises
    ------
    InvalidRows
        If there are fewer than two rows.

    Notes
    -----
    Takes O(entries of X · targets) time and O(features · targets) memory. K and L are never
    formed.
    """
    state = SPCA(kernel=kernel, sigma=sigma, feature_map=feature_map).fit(X, y, sample_weight).state_
    moments = moments_of(state)
    return hsic_of_sums(moments, moments.cleaned(moments.cross, moments.target_size))
