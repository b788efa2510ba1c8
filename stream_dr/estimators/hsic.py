"""The Hilbert-Schmidt independence criterion of rows and targets."""

from typing import Literal

import numpy as np

from stream_dr.aliases import JsonDict
from stream_dr.errors import InvalidParameter
from stream_dr.estimators.fitting.dependence import check_hsic_weight, hsic_of_sums
from stream_dr.estimators.fitting.fitted_state import new_fitted_state
from stream_dr.estimators.fitting.inputs import RowsLike, TargetsLike, WeightsLike
from stream_dr.estimators.fitting.moments import moments_of
from stream_dr.estimators.fitting.parameter_checks import check_choice, check_number
from stream_dr.estimators.spca import SPCA
from stream_dr.rows.batches import as_block, split_targets
from stream_dr.rows.block import Rows, row_weights
from stream_dr.rows.sparse_rows import is_sparse
from stream_dr.statistics.moments.encoding import dense_columns, encode
from stream_dr.targets.targets import Targets, labelled_rows

BLOCK_VALUES = 1 << 22
"""Largest number of kernel values that are computed at a time."""


def hsic(
    X: RowsLike,
    y: TargetsLike,
    sample_weight: WeightsLike = None,
    *,
    kernel: Literal["linear", "delta", "rbf"] = "linear",
    sigma: float = 1.0,
    x_kernel: Literal["linear", "rbf"] = "linear",
    x_sigma: float = 1.0,
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
        Width of the "rbf" kernel of the targets, exp(−|y − y'|²/(2 sigma²)).
    x_kernel, x_sigma : {"linear", "rbf"}, default "linear", and float > 0, default 1.0
        Kernel of the rows, and the width of exp(−|x − x'|²/(2 x_sigma²)).
    feature_map : dict or None, default None
        Spec of a feature map that is applied to the rows first. Then an "rbf" kernel of numbers is
        approximated by Fourier features, as in `SPCA`, and `x_kernel` must be "linear".

    Raises
    ------
    InvalidRows
        If there are fewer than two rows.

    Notes
    -----
    With linear kernels this takes O(entries of X · targets) time and O(features · targets) memory.
    With an "rbf" kernel it takes O(rows² · (features + targets)) time and O(rows) memory. K and L
    (n, n) are never formed.
    """
    if feature_map is not None and x_kernel != "linear":
        raise InvalidParameter(f"x_kernel={x_kernel!r} with a feature_map; the kernel of mapped rows is linear.")
    if feature_map is None and (kernel == "rbf" or x_kernel != "linear"):
        return _exact(X, y, sample_weight, kernel, sigma, x_kernel, x_sigma)
    state = SPCA(kernel=kernel, sigma=sigma, feature_map=feature_map).fit(X, y, sample_weight).state_
    moments = moments_of(state)
    return hsic_of_sums(moments, moments.cleaned(moments.cross, moments.target_size))


def _exact(
    X: RowsLike, y: TargetsLike, weights: WeightsLike, kernel: str, sigma: float, x_kernel: str, x_sigma: float
) -> float:
    """Return the criterion with exact kernels. See `hsic` for the parameters."""
    spca = SPCA(kernel=kernel, sigma=sigma)  # type: ignore[arg-type]
    spca.check_parameters()
    check_choice("x_kernel", x_kernel, ("linear", "rbf"))
    check_number("x_sigma", x_sigma, low=0.0, open_low=True)

    block, _ = spca.parse(new_fitted_state(spca), split_targets(as_block(X, y, weights)), refuse_empty=True)
    block, _ = labelled_rows(block)
    # For labels "rbf" is the delta kernel, as for SPCA.
    y_sigma = sigma if kernel == "rbf" and block.y.kind == "continuous" else None
    row_sigma = x_sigma if x_kernel == "rbf" else None
    return _in_blocks(block.X, _target_columns(block.y), row_weights(block.weights, block.rows), row_sigma, y_sigma)


def _target_columns(targets: Targets) -> np.ndarray:
    """Return targets as columns (rows, k): numbers as they are, labels as 0 and 1."""
    k = len(targets.labels) if targets.values is None else targets.values.shape[1]
    encoded = encode(targets, "indicator", np.arange(k, dtype=np.int32))
    return dense_columns(encoded, 0, targets.rows, k)


def _in_blocks(X: Rows, Y: np.ndarray, weights: np.ndarray, x_sigma: float | None, y_sigma: float | None) -> float:
    """Return the criterion, from the kernel values of some rows with all rows at a time.

    Y: (rows, k) targets.
    weights: (rows,).
    x_sigma, y_sigma: widths of RBF kernels of rows and of targets. None for linear kernels.
    """
    n, total = len(weights), float(weights.sum())
    check_hsic_weight(total)
    # The criterion depends on differences alone, and rows far from 0 would lose digits.
    X = X if is_sparse(X) else X - X[0]
    Y = Y - Y[0]

    joint, of_rows, of_targets = 0.0, np.empty(n), np.empty(n)
    size = max(1, BLOCK_VALUES // n)
    for start in range(0, n, size):
        part = slice(start, start + size)
        K, L = _kernel(X[part], X, x_sigma), _kernel(Y[part], Y, y_sigma)
        of_rows[part], of_targets[part] = K @ weights, L @ weights
        joint += float(weights[part] @ ((K * L) @ weights))

    crossed = float(weights @ (of_rows * of_targets)) / total
    product = float(weights @ of_rows) * float(weights @ of_targets) / total**2
    return max(0.0, joint - 2.0 * crossed + product) / (total - 1.0) ** 2


def _kernel(A: Rows, B: Rows, sigma: float | None) -> np.ndarray:
    """Return the RBF kernel of width sigma of rows A with rows B, or the linear kernel for None."""
    from sklearn.metrics.pairwise import linear_kernel, rbf_kernel

    return np.asarray(linear_kernel(A, B) if sigma is None else rbf_kernel(A, B, gamma=0.5 / sigma**2))
