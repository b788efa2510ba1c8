"""hsic: the Hilbert-Schmidt independence criterion of rows and their targets."""

from typing import Any, Literal

from stream_dr.estimators.fitting.dependence import criterion
from stream_dr.estimators.fitting.moments import moments_of
from stream_dr.estimators.spca import SPCA


def hsic(
    X: Any,
    y: Any,
    sample_weight: Any = None,
    *,
    kernel: Literal["linear", "delta", "rbf"] = "linear",
    sigma: float = 1.0,
    feature_map: dict[str, Any] | None = None,
) -> float:
    """The Hilbert-Schmidt independence criterion of rows and targets, tr(K H L H) / (n − 1)² [SRP eq. 1].

    X: (rows, features), say what `transform` gives; K is their linear kernel, or the one of `feature_map`. y: the rows'
    labels or numbers; L is `kernel` on them, as SPCA's parameters `kernel` and `sigma` have it: on labels the delta
    kernel. sample_weight: (rows,). 0 where no mean of X depends on y; it grows with the square of X. Time O(entries of X ·
    targets), memory O(features · targets): K and L are never formed. Raises InvalidRows where there are fewer than two rows.

    >>> from stream_dr import hsic
    >>> round(hsic([[0.0], [2.0], [0.0], [2.0]], ["a", "b", "a", "b"]), 3), hsic([[0.0], [2.0]] * 2, ["a", "a", "b", "b"])
    (0.889, 0.0)
    """
    state = SPCA(kernel=kernel, sigma=sigma, feature_map=feature_map).fit(X, y, sample_weight).state_
    moments = moments_of(state)
    return criterion(moments, moments.cleaned(moments.cross, moments.target_size))
