"""The six methods of the SRP paper's figures, linear and behind 1,000 random Fourier features of the RBF kernel.

With c classes SPCA has c − 1 directions, and SRP's columns are combinations of as many: for two classes both are one
line, whatever number of columns is asked for. KSPCA and KSRP likewise. (The delta kernel on labels has rank c;
centring takes one.)
"""

import time
from typing import Any

import numpy as np

from benchmarks.papers.sets import error, split
from stream_dr import PCA, SPCA, SRP, random_fourier

GAMMAS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""Candidates for γ of the RBF kernel on rows scaled to [0, 1], divided by the number of features / 10."""

METHODS = {"PCA": PCA, "kernel PCA": PCA, "SPCA": SPCA, "KSPCA": SPCA, "SRP": SRP, "KSRP": SRP}
KERNEL = ("kernel PCA", "KSPCA", "KSRP")


def method(name: str, k: int, gamma: float, seed: int, n_features: int = 1000) -> Any:
    """The estimator, asked for k components; with γ and the number of Fourier features where it is a kernel method."""
    spec = random_fourier(n_features, gamma=gamma, seed=seed) if name in KERNEL else None
    papers = {"scaling": "source"} if METHODS[name] is SRP else {}
    return METHODS[name](n_components=k, feature_map=spec, random_state=seed, **papers)


def measure(name: str, k: int, gamma: float, seed: int, rows: tuple[Any, ...], n_features: int) -> tuple[float, float]:
    """1-NN accuracy on held-out rows, and seconds to learn, solve and project both parts."""
    X, y, T, truth = rows
    began = time.perf_counter()
    model = method(name, k, gamma, seed, n_features).fit(X, y)
    Z, W = model.transform(X), model.transform(T)
    seconds = time.perf_counter() - began
    return 1.0 - error(Z, y, W, truth), seconds


def chosen_gamma(name: str, X: np.ndarray, y: np.ndarray, folds: int, n_features: int) -> float:
    """γ of best 1-NN accuracy of a kernel method with 2 columns, by repeated 90/10 splits of the training rows."""
    if name not in KERNEL:
        return 1.0
    scores = []
    for gamma in GAMMAS:
        value = gamma * 10 / X.shape[1]
        parts = [split(y, 0.9, fold) for fold in range(folds)]
        rows = [(X[a], y[a], X[b], y[b]) for a, b in parts]
        scores.append((np.mean([measure(name, 2, value, 0, r, n_features)[0] for r in rows]), value))
    return float(max(scores)[1])
