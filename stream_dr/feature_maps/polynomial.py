"""Products of features, for the polynomial kernel.

The kernel of two rows x and x' is (γ xᵀx' + c)^degree. It is the inner product of the rows'
products, if the products are weighted accordingly.

The parameter n_features is the maximum number of columns of a mapped row. If there are at most
n_features different products, the map returns all products, and inner
products of mapped rows are exact. Mapping a row then costs O(n_features · degree), and the map
takes 8 · degree bytes for each product.

If there are more products, the map returns a tensor sketch (Pham and Pagh 2013), a random
projection of the products. Inner products of mapped rows then have an error of about
1/√n_features. Mapping a row costs O(degree · (nonzeros + n_features log n_features)), and the map
takes 12 · degree bytes for each feature. Random numbers of feature i depend only on the seed and
i, so sparse batches of different widths are mapped in the same way.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, combinations_with_replacement
from math import comb, factorial

import numpy as np
import scipy.sparse as sp

from stream_dr.batch.block import Rows, check_finite
from stream_dr.batch.sparse import pad_with_zero_columns
from stream_dr.errors import InvalidParameter
from stream_dr.feature_maps.feature_map import FeatureMap, check_seed_or_none, draw_uniforms, is_integer_within
from stream_dr.feature_maps.nystroem import check_kernel_parameters

SKETCH = 24
"""Number that identifies this use of random numbers (parameter `purpose_id` in feature_map.py)."""


@dataclass(frozen=True)
class Polynomial(FeatureMap):
    """Products of features, for the polynomial kernel.

    The kernel of two rows x and x' is (γ xᵀx' + c)^degree.

    Attributes
    ----------
    degree : int
        Degree of the polynomial, from 1 to 20.
    n_features : int
        Largest number of columns of mapped rows.
    gamma : float
        Parameter γ of the kernel, above 0.
    coef0 : float
        Constant c of the kernel, at least 0. With 0 there are no products of fewer than `degree`
        features.
    seed : int
        Seed of the tensor sketch, a random projection of the products. It is used if there are
        more than n_features products.
    """

    degree: int = 2
    n_features: int = 4096
    gamma: float = 1.0
    coef0: float = 1.0
    seed: int = 0

    first_row_fixes_width = True
    """True, because with another number of features there would be other products."""

    def product_count(self, n_features: int) -> int:
        """Return the number of different products of `degree` factors.

        The factors are the `n_features` features and, unless coef0 is 0, a constant.
        """
        return comb(n_features + bool(self.coef0) + self.degree - 1, self.degree)

    def max_mapped_columns(self, n_input_columns: int) -> int:
        """Return the number of columns of mapped rows, or an upper bound if it is unknown.

        n_input_columns: number of features of the rows before mapping. If it is unknown (0), the
            result is `n_features`, the most that the map returns.
        """
        if n_input_columns:
            return min(self.product_count(n_input_columns), self.n_features)
        return self.n_features

    def check(self) -> None:
        """Raise InvalidParameter if a parameter is outside its range."""
        n = self.n_features
        if not is_integer_within(n, 1, 2**24):
            raise InvalidParameter(f"n_features={n!r} of polynomial; it must be an integer from 1 to 2²⁴.")
        check_kernel_parameters("polynomial", self.gamma, self.degree, self.coef0)
        check_seed_or_none(self.seed)

    def apply(self, X: Rows, n_stream_features: int, names: tuple[str, ...] | None = None) -> np.ndarray:
        """Return all products of `degree` features of each row, one product a column.

        The result is (rows, columns) float64. If there are too many products, the result is their
        tensor sketch, a random projection of the products.

        X: (rows, features), dense or CSR.
        n_stream_features: number of features of the stream so far.
        names: not used.

        Raises NotFinite if a product is too large.
        """
        # Sparse rows may lack the stream's last features. The kernel (γ xᵀy + coef0)^degree has the
        # factor γ, so each of the two rows is multiplied by √γ.
        if sp.issparse(X):
            X = pad_with_zero_columns(X, max(n_stream_features, X.shape[1]))
        X = X.astype(np.float64, copy=False) * np.sqrt(self.gamma)
        # `self.n_features` is the largest number of mapped columns.
        with np.errstate(over="ignore", invalid="ignore"):
            if self.product_count(X.shape[1]) <= self.n_features:
                out = self._all_products(X)
            else:
                out = self._tensor_sketch(X)
        check_finite(out)
        return out

    def bytes(self, n_input_columns: int) -> int:
        """Return the memory of the map in bytes.

        The memory is 8 · degree bytes for each product if the map returns all products. It is
        12 · degree bytes for each feature if the map returns a tensor sketch.

        n_input_columns: number of features of the rows before mapping.
        """
        n_products = self.product_count(n_input_columns)
        if n_products <= self.n_features:
            return 8 * self.degree * n_products
        return 12 * self.degree * n_input_columns

    def _all_products(self, X: Rows) -> np.ndarray:
        """Return all products of `degree` features of each row.

        The result is (rows, products).

        X: (rows, features). The caller has multiplied X by √γ.
        """
        rows = X.toarray() if sp.issparse(X) else X
        # The constant coef0 of the kernel acts like one more feature of the value √coef0.
        if self.coef0:
            constant = np.full((len(rows), 1), np.sqrt(self.coef0))
            rows = np.hstack([rows, constant])

        # Row i of `factors` (products, degree) has the indices of the features in product i. Its
        # weight makes the inner product of two results the kernel. Start from the weights
        # (products,), and multiply by one feature of each product at a time.
        factors, weights = product_factors(rows.shape[1], self.degree)
        out = np.tile(weights, (len(rows), 1))
        for features in factors.T:
            out *= rows[:, features]
        return out

    def _tensor_sketch(self, X: Rows) -> np.ndarray:
        """Return the tensor sketch (rows, n_features) of rows.

        Its inner products approximate the kernel (γ xᵀx' + coef0)^degree. It is the convolution of
        `degree` count sketches of each row. A count sketch
        adds each feature, with a random sign, to a random column.

        X: (rows, features). The caller has multiplied X by √γ.
        """
        # The Fourier transform of a convolution (`spectrum`) is the product of the transforms.
        # `constant` is the sketch of √coef0, which acts like one more feature of each row. Each
        # number `t` gives another random sketch.
        spectrum: np.ndarray | float = 1.0
        for t in range(self.degree):
            sketch_matrix, constant = _draw_sketch(self, t, X.shape[1])
            sketch = X @ sketch_matrix
            if sp.issparse(sketch):
                sketch = sketch.toarray()
            spectrum = spectrum * np.fft.rfft(sketch + constant)
        return np.fft.irfft(spectrum, self.n_features)


@lru_cache(maxsize=8)
def product_factors(n_features: int, degree: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the factors and the weight of each product of features.

    The polynomial kernel of two rows is the inner product of their weighted products.

    Row i of the factors (products, degree) has the indices of the features in product i. The
    weight (products,) of a product is the square root of the number of orders in which its factors
    can be written.

    n_features: number of features.
    degree: number of factors of each product.
    """
    every = chain.from_iterable(combinations_with_replacement(range(n_features), degree))
    factors = np.fromiter(every, dtype=np.int64).reshape(-1, degree)

    # `orders` counts the orders in which the factors of each product can be written.
    # Equal factors are neighbours in `factors`. n equal factors divide the number of orders by n!.
    # `run` counts the equal factors up to column j, so that orders is divided by 1, 2, …, n.
    orders = np.full(len(factors), float(factorial(degree)))
    run = np.ones(len(factors))
    for j in range(1, degree):
        repeats = factors[:, j] == factors[:, j - 1]
        run = np.where(repeats, run + 1.0, 1.0)
        orders /= run
    return factors, np.sqrt(orders)


@lru_cache(maxsize=16)
def _draw_sketch(sketched_map: Polynomial, sketch_number: int, n_features: int) -> tuple[sp.csr_matrix, np.ndarray]:
    """Return a count sketch, and the sketch of √coef0.

    The kernel's constant coef0 acts like one more feature of the value √coef0. A count sketch adds
    each feature, with a random sign, to a random column of the mapped rows. The count sketch is a
    CSR matrix (n_features, mapped columns) with one 1 or −1 in the row of each feature. The sketch
    of √coef0 is (mapped columns,).

    sketched_map: the map.
    sketch_number: number of the count sketch, below the degree. Each number gives another random
        sketch.
    n_features: number of features of the rows before mapping.
    """
    # Each feature has two random numbers in (0, 1): one for its column and one for its sign.
    # Row 0 is drawn for the constant √coef0. The second argument identifies the use of the random
    # numbers, and differs for each sketch.
    # The third argument is the number of the first row.
    n_mapped = sketched_map.n_features
    drawn = draw_uniforms(sketched_map.seed, SKETCH + 100 * sketch_number, 0, n_features + 1, 2)
    columns = (drawn[:, 0] * n_mapped).astype(np.int64)
    signs = np.where(drawn[:, 1] < 0.5, -1.0, 1.0)

    # The row starts 0, 1, 2, … mean one entry per row.
    row_starts = np.arange(n_features + 1)
    sketch = sp.csr_matrix((signs[1:], columns[1:], row_starts), shape=(n_features, n_mapped))
    constant = np.zeros(n_mapped)
    constant[columns[0]] = signs[0] * np.sqrt(sketched_map.coef0)
    return sketch, constant
