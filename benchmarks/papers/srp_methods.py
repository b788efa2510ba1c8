"""The methods of the SRP paper's figures, by the library's estimators: linear, with the kernel exactly (every training row a
landmark of `nystroem`), and with 1,000 random Fourier features in its place.

SPCA and KSPCA are asked for null-space directions where more columns are wanted than classes − 1, as a plain eigensolver
gives them. SRP's and KSRP's columns then are combinations of classes − 1 (the delta kernel on labels has rank c; centring
takes one): for two classes they lie on a line.
"""

from collections.abc import Callable

import numpy as np

from benchmarks.papers import srp_dense as dense
from benchmarks.papers.sets import available, error, load, scaled, split
from benchmarks.papers.srp_dense import Embedding, Rows
from stream_dr import PCA, SPCA, SRP, nystroem, random_fourier

GAMMAS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""Candidates for γ of the RBF kernel on rows scaled to [0, 1], times 10 / features."""

Method = Callable[[Rows, int, float, int], Embedding]
"""(rows, columns, γ, seed) → embeddings of both parts."""

Kernel = Callable[[Rows, float, int], dict[str, object] | None]
"""(rows, γ, seed) → the spec of a feature map."""


def fitted(model: PCA | SPCA | SRP, rows: Rows) -> Embedding:
    """Both parts, projected by a model of the training rows."""
    model.fit(rows.X, rows.y)
    return model.transform(rows.X), model.transform(rows.T)


def _exact(rows: Rows, gamma: float, seed: int) -> dict[str, object]:
    return nystroem(len(rows.y), gamma=gamma)


def _fourier(rows: Rows, gamma: float, seed: int) -> dict[str, object]:
    return random_fourier(1000, gamma=gamma, seed=seed)


def _pca(kernel: Kernel) -> Method:
    return lambda rows, k, gamma, seed: fitted(PCA(k, feature_map=kernel(rows, gamma, seed)), rows)


def _spca(kernel: Kernel) -> Method:
    return lambda rows, k, gamma, seed: fitted(
        SPCA(k, null_space=True, random_state=seed, feature_map=kernel(rows, gamma, seed)), rows
    )


def _srp(kernel: Kernel) -> Method:
    return lambda rows, k, gamma, seed: fitted(
        SRP(k, scaling="source", random_state=seed, feature_map=kernel(rows, gamma, seed)), rows
    )


def _linear_projection_array(rows: Rows, gamma: float, seed: int) -> None:
    return None


METHODS: dict[str, Method] = {
    "PCA": _pca(_linear_projection_array),
    "SPCA": _spca(_linear_projection_array),
    "SRP": _srp(_linear_projection_array),
    "kernel PCA, exact": _pca(_exact),
    "KSPCA, exact": _spca(_exact),
    "KSRP, exact": _srp(_exact),
    "KSPCA, Fourier": _spca(_fourier),
    "KSRP, Fourier": _srp(_fourier),
}


def rows_of(name: str, seed: int, most: int | None = None) -> Rows:
    """A 70 / 30 split of a set, features scaled to [0, 1] as the paper does; `most` training rows."""
    X, y = load(name)
    X = scaled(X)
    train, test = split(y, 0.7, seed)
    return Rows(X[train[:most]], y[train[:most]], X[test], y[test])


def missing(names: tuple[str, ...]) -> list[str]:
    """The sets that are not at hand."""
    return [name for name in names if not available(name)]


def accuracy(embedding: Embedding, rows: Rows) -> float:
    """1-NN accuracy on the rows held out."""
    return 1.0 - error(embedding[0], rows.y, embedding[1], rows.truth)


def chosen_gamma(rows: Rows, supervised: bool, folds: int = 10) -> float:
    """γ of best mean 1-NN accuracy over folds of the training rows: exact KSPCA (classes − 1 columns) or kernel PCA (2)."""
    parts = np.array_split(np.random.default_rng(0).permutation(len(rows.y)), folds)
    scores = []
    for value in GAMMAS:
        gamma, found = value * 10 / rows.X.shape[1], []
        for part in parts:
            rest = np.setdiff1d(np.arange(len(rows.y)), part)
            fold = Rows(rows.X[rest], rows.y[rest], rows.X[part], rows.y[part])
            embedding = dense.kspca_of_classes(fold, 99, gamma) if supervised else dense.kernel_pca(fold, 2, gamma)
            found.append(accuracy(embedding, fold))
        scores.append((float(np.mean(found)), gamma))
    return max(scores)[1]


def gammas(rows: Rows, folds: int = 10) -> dict[str, float]:
    """γ by method, of the training rows alone: KSPCA's for the supervised kernel methods, kernel PCA's own."""
    supervised = chosen_gamma(rows, True, folds)
    return {name: chosen_gamma(rows, False, folds) if name == "kernel PCA, exact" else supervised for name in METHODS}
