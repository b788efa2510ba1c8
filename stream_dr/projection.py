"""Projection: what a State is solved into; immutable, applied to rows, swapped as one reference.

`Linear` subtracts a mean and multiplies by components; `Columns` keeps chosen features; `Mapped` runs a feature map
first; `Landmarks` (reservoir methods) lives beside its solver in solve/graph.py. Each has `kind`, `solution`, `n_features`,
`n_components` and `apply(X) → (rows, components)`.

At apply, a sparse index the projection never saw contributes nothing; a dense width other than `n_features` is an error.

Why this way: a reader that holds a Projection needs no lock; publishing is the swap of one reference.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from stream_dr.errors import WidthMismatch


class Projection(Protocol):
    """What every projection offers."""

    @property
    def kind(self) -> str:
        """Name of the form: "linear", "columns", "mapped" or "landmarks"."""
        ...

    @property
    def solution(self) -> str:
        """How it was found: "exact", "diagonal", "refined" or "recurrence"."""
        ...

    @property
    def n_features(self) -> int:
        """Width of the rows it was learned from."""
        ...

    @property
    def n_components(self) -> int:
        """Columns of its answer."""
        ...

    def apply(self, X: Any) -> np.ndarray:
        """Project rows (rows, features) to (rows, components) float64."""
        ...


class Linear(NamedTuple):
    """z = (x − mean) · loadings.

    mean: (features,) float64, zeros where the method does not centre.
    loadings: (features, components) float64, C-ordered; its transpose is `components_`.
    eigenvalues: (components,) float64.
    solution: "exact", "diagonal", "refined" or "recurrence".
    """

    mean: np.ndarray
    loadings: np.ndarray
    eigenvalues: np.ndarray
    solution: str

    @property
    def kind(self) -> str:
        """ "linear"."""
        return "linear"

    @property
    def n_features(self) -> int:
        """Width of the rows it was learned from."""
        return int(self.loadings.shape[0])

    @property
    def n_components(self) -> int:
        """Columns of its answer."""
        return int(self.loadings.shape[1])

    @property
    def components(self) -> np.ndarray:
        """(components, features), a view."""
        return self.loadings.T

    def oriented(self, order: np.ndarray, signs: np.ndarray) -> "Linear":
        """The same projection with its components in another order (components,) and with signs (components,) ±1."""
        loadings = np.ascontiguousarray(self.loadings[:, order] * signs)
        return self._replace(loadings=loadings, eigenvalues=self.eigenvalues[order])

    def apply(self, X: Any) -> np.ndarray:
        """Project rows (rows, features), dense or CSR; O(entries · components). Raises WidthMismatch."""
        if sp.issparse(X):
            X = _fit_width(X, self.n_features)
            return np.asarray(X @ self.loadings[: X.shape[1]]) - self.mean @ self.loadings
        check_width(X, self.n_features)
        return (X.astype(np.float64, copy=False) - self.mean) @ self.loadings


class Columns(NamedTuple):
    """Keeps chosen features.

    columns: (components,) int64 feature indices, best first. scores: (components,) float64. width: features seen.
    """

    columns: np.ndarray
    scores: np.ndarray
    width: int
    solution: str = "exact"

    @property
    def kind(self) -> str:
        """ "columns"."""
        return "columns"

    @property
    def n_features(self) -> int:
        """Width of the rows it was learned from."""
        return self.width

    @property
    def n_components(self) -> int:
        """Columns of its answer."""
        return len(self.columns)

    def apply(self, X: Any) -> np.ndarray:
        """The chosen columns of rows (rows, features) as dense (rows, components). Raises WidthMismatch."""
        if sp.issparse(X):
            X = _fit_width(X, self.width)
            out = np.zeros((X.shape[0], self.n_components))
            there = self.columns < X.shape[1]
            out[:, there] = X[:, self.columns[there]].toarray()
            return out
        check_width(X, self.width)
        return X[:, self.columns].astype(np.float64)


def check_width(X: Any, n_features: int) -> None:
    """Raise WidthMismatch when dense rows have another width than the projection."""
    if X.shape[1] != n_features:
        raise WidthMismatch(
            f"X has {X.shape[1]} features, but this projection is expecting {n_features} features as input. "
            "Send those columns or start a new model."
        )


def _fit_width(X: sp.csr_matrix, n_features: int) -> sp.csr_matrix:
    """CSR rows without the columns past n_features, which contribute nothing."""
    return X if X.shape[1] <= n_features else X[:, :n_features]
