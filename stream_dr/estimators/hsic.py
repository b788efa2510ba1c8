"""The Hilbert-Schmidt independence criterion of rows and targets."""

from typing import Literal

import numpy as np

from stream_dr.aliases import JsonDict
from stream_dr.batch.block import Block, Rows, weights_or_ones
from stream_dr.batch.rows import as_block, take_target_column
from stream_dr.batch.sparse import is_sparse
from stream_dr.batch.targets import drop_rows_without_target
from stream_dr.errors import InvalidParameter
from stream_dr.estimators.fitting.inputs import RowsLike, TargetsLike, WeightsLike
from stream_dr.estimators.fitting.moments import compute_moments
from stream_dr.estimators.fitting.parameters import check_choice, check_number_in_range
from stream_dr.estimators.fitting.stream_learner import new_fitted_state
from stream_dr.estimators.spca import SPCA, check_weight_above_one, hsic_from_moments
from stream_dr.statistics.moments.encoding import dense_encoded_rows, encode_as_columns

BLOCK_VALUES = 1 << 22
"""Maximum number of kernel values that are computed at a time."""


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

    The criterion measures how much the rows depend on the targets. With linear kernels, the
    criterion is 0 if the rows are not correlated with the targets. For n rows, the criterion is
    tr(K H L H) / (n − 1)² [SRP eq. 1]. K (n, n) is a kernel matrix of the rows, and L (n, n) is a
    kernel matrix of the targets. H (n, n) is the centring matrix, which subtracts the mean.

    >>> from stream_dr import hsic
    >>> round(hsic([[0.0], [2.0], [0.0], [2.0]], ["a", "b", "a", "b"]), 3)
    0.889
    >>> hsic([[0.0], [2.0]] * 2, ["a", "a", "b", "b"])
    0.0

    Parameters
    ----------
    X : array (rows, features)
        Rows, such as the output of `transform`.
    y : array (rows,)
        Labels or numbers of the rows.
    sample_weight : array (rows,) or None, default None
        Weights of the rows.
    kernel : {"linear", "delta", "rbf"}, default "linear"
        Kernel of the targets, as in `SPCA`.
    sigma : float > 0, default 1.0
        Width of the "rbf" kernel of targets y and y', exp(−|y − y'|²/(2 sigma²)).
    x_kernel : {"linear", "rbf"}, default "linear"
        Kernel of the rows. Must be "linear" if `feature_map` is set.
    x_sigma : float > 0, default 1.0
        Width of the "rbf" kernel of rows x and x', exp(−|x − x'|²/(2 x_sigma²)).
    feature_map : dict or None, default None
        Spec of a map of the rows. "random_fourier" approximates the "rbf" kernel of the rows.

    Raises
    ------
    InvalidRows
        If there are fewer than two rows.

    Notes
    -----
    Linear kernels take O(entries of X · targets) time and O(features · targets) memory. An exact
    "rbf" kernel takes O(rows² · (features + targets)) time and O(rows) memory.
    """
    if feature_map is not None and x_kernel != "linear":
        raise InvalidParameter(f"x_kernel={x_kernel!r} with a feature_map; the kernel of mapped rows is linear.")
    if feature_map is None and (kernel == "rbf" or x_kernel != "linear"):
        return _exact_hsic(X, y, sample_weight, kernel, sigma, x_kernel, x_sigma)
    state = SPCA(kernel=kernel, sigma=sigma, feature_map=feature_map).fit(X, y, sample_weight).state_
    moments = compute_moments(state)  # SPCA learns the sums that the criterion needs.
    return hsic_from_moments(moments, moments.clear_noisy_features(moments.cross, moments.uncentred_target_norm))


def _exact_hsic(
    X: RowsLike, y: TargetsLike, weights: WeightsLike, kernel: str, sigma: float, x_kernel: str, x_sigma: float
) -> float:
    """Return the Hilbert-Schmidt independence criterion with exact kernels.

    X: rows (rows, features).
    y: targets (rows,), or the name of the column of X with the targets.
    weights: weights (rows,), or None if all weights are 1.
    kernel, sigma: kernel of the targets, and its width for "rbf".
    x_kernel, x_sigma: kernel of the rows, and its width for "rbf".
    """
    check_choice("x_kernel", x_kernel, ("linear", "rbf"))
    check_number_in_range("x_sigma", x_sigma, low=0.0, exclude_low=True)
    block = _rows_with_targets(X, y, weights, kernel, sigma)

    # Choose the widths of the RBF kernels of targets and rows. None means the linear kernel.
    # For labels, "rbf" means the linear kernel of the indicators (0 and 1), without a width.
    y_sigma = None
    if kernel == "rbf" and block.y.kind == "continuous":
        y_sigma = sigma
    row_sigma = None
    if x_kernel == "rbf":
        row_sigma = x_sigma
    row_weights = weights_or_ones(block.weights, block.rows)
    return _hsic_in_blocks(block.X, _target_columns(block), row_weights, row_sigma, y_sigma)


def _target_columns(block: Block) -> np.ndarray:
    """Return targets (rows, k): numbers as they are, or 0 and 1 for each of k labels."""
    if block.y.values is not None:
        k = block.y.values.shape[1]
    else:
        k = len(block.y.labels)
    # The block has all labels, so label j gets column j.
    encoded = encode_as_columns(block.y, "indicator", np.arange(k, dtype=np.int32))
    return dense_encoded_rows(encoded, block.rows, k)


def _rows_with_targets(X: RowsLike, y: TargetsLike, weights: WeightsLike, kernel: str, sigma: float) -> Block:
    """Return the rows that have a target, checked and converted."""
    # `SPCA` has the same targets, so it checks `kernel` and `sigma` and converts rows and targets.
    # It converts them for a fitted state, here of an estimator that has learned nothing.
    spca = SPCA(kernel=kernel, sigma=sigma)  # type: ignore[arg-type]
    spca.check_parameters()
    # If y is the name of a column of X, this column becomes the targets.
    rows = take_target_column(as_block(X, y, weights))
    parsed = spca.parse(new_fitted_state(spca), rows, raise_if_empty=True)
    block, _ = drop_rows_without_target(parsed)
    return block


def _hsic_in_blocks(
    X: Rows, target_columns: np.ndarray, weights: np.ndarray, x_sigma: float | None, y_sigma: float | None
) -> float:
    """Return the Hilbert-Schmidt independence criterion, computed in blocks.

    A block has the kernel values of some rows with all rows, at most about BLOCK_VALUES numbers.

    X: (rows, features).
    target_columns: (rows, k), targets as numeric columns.
    weights: (rows,), weight of each row.
    x_sigma: width of the RBF kernel of the rows, or None for the linear kernel.
    y_sigma: width of the RBF kernel of the targets, or None for the linear kernel.
    """
    n = len(weights)
    # The criterion is divided by (total − 1)².
    total = float(weights.sum())
    check_weight_above_one(total)
    # Subtract the first row from all rows, because values far from 0 would lose digits.
    # The subtraction does not change the criterion.
    if not is_sparse(X):
        X = X - X[0]
    target_columns = target_columns - target_columns[0]

    # K and L (n, n) are the kernel matrices of rows and targets. A block has some of their rows.
    # Sum the products of K and L (`trace`), and compute the weighted row sums of K and of L.
    trace = 0.0
    K_sums = np.empty(n)
    L_sums = np.empty(n)
    size = max(1, BLOCK_VALUES // n)
    for start in range(0, n, size):
        part = slice(start, start + size)
        K = _kernel_matrix(X[part], X, x_sigma)
        L = _kernel_matrix(target_columns[part], target_columns, y_sigma)
        K_sums[part] = K @ weights
        L_sums[part] = L @ weights
        trace += float(weights[part] @ ((K * L) @ weights))

    # Centring adds two terms to the trace. With the centring matrix H, the trace tr(K H L H) is
    # tr(K L) − 2/n · 1ᵀ K L 1 + (1ᵀ K 1)(1ᵀ L 1)/n², here for weighted rows.
    second = float(weights @ (K_sums * L_sums)) / total
    third = float(weights @ K_sums) * float(weights @ L_sums) / total**2
    return max(0.0, trace - 2.0 * second + third) / (total - 1.0) ** 2


def _kernel_matrix(A: Rows, B: Rows, sigma: float | None) -> np.ndarray:
    """Return RBF kernel values of width sigma, linear if None."""
    # The result has a value for each row of A and each row of B. The linear kernel is xᵀy.
    from sklearn.metrics.pairwise import linear_kernel, rbf_kernel

    if sigma is None:
        return np.asarray(linear_kernel(A, B))
    return np.asarray(rbf_kernel(A, B, gamma=0.5 / sigma**2))
