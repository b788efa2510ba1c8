"""WMV lecture, its pictures of PCA and of kernel PCA with the polynomial kernel of degree 2, and what it says of both.

PCA by eigenvectors of the scatter is the rows' singular vectors; kernel PCA is the centred kernel matrix' eigenvectors, here
from a stream of batches behind `polynomial(degree=2)` and, on landmarks, behind `nystroem`. Rows are standardised.
"""

from collections.abc import Iterator

import numpy as np

from benchmarks.papers.claims import Claim, Options
from benchmarks.papers.drawing import figure, save, save_numbers
from benchmarks.papers.sets import available, load
from benchmarks.papers.verdicts import eigenvectors
from stream_dr import PCA, nystroem, polynomial

SETS = ("breast cancer", "ionosphere", "wine", "sonar")
"""The lecture's are breast cancer, climate simulation, QSAR and ionosphere; wine and sonar stand under their own names."""
MISSING = ("climate simulation", "QSAR")


def centred_kernel(X: np.ndarray) -> np.ndarray:
    """(xᵀx'/d + 1)² of all pairs of rows, centred."""
    K = (X @ X.T / X.shape[1] + 1.0) ** 2
    return K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()


def streamed(X: np.ndarray, feature_map: dict | None = None) -> np.ndarray:
    """Two columns of PCA behind a map, learned in batches of 50 rows."""
    pca = PCA(2, feature_map=feature_map)
    for start in range(0, len(X), 50):
        pca.partial_fit(X[start : start + 50])
    return pca.transform(X)


def difference(Z: np.ndarray, expected: np.ndarray) -> float:
    """Largest relative difference, whatever the columns' signs."""
    return float(np.abs(np.abs(Z) - np.abs(expected)).max() / np.abs(expected).max())


def run(options: Options) -> Iterator[Claim]:
    """Each set's PCA and kernel PCA; the pictures where asked."""
    drawn = {}
    for name in SETS[:1] if options.quick else SETS:
        if not available(name):
            yield Claim(f"{name}: PCA and kernel PCA", "a picture", "—", "missing", "it is read from STREAM_DR_DATA")
            continue
        X, y = load(name)
        spread = X.std(axis=0)
        X = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
        left, roots, _ = np.linalg.svd(X, full_matrices=False)
        values, vectors = np.linalg.eigh(centred_kernel(X))
        expected = vectors[:, :-3:-1] * np.sqrt(values[:-3:-1])
        plain, products = streamed(X), streamed(X, polynomial(degree=2, gamma=1 / X.shape[1]))
        on = streamed(X, nystroem(len(X), "polynomial", gamma=1 / X.shape[1], degree=2))
        drawn[name] = plain, products, y
        off = difference(plain, left[:, :2] * roots[:2])
        yield _same(f"{name}: PCA from a stream", "left singular vectors", off, roots**2)
        for what, paper, Z in (
            ("polynomial(2)", "the centred kernel's eigenvectors", products),
            ("nystroem, all rows", "the same", on),
        ):
            yield _same(f"{name}: kernel PCA, {what}", paper, difference(Z, expected), values)
    for name in MISSING:
        yield Claim(f"{name}: PCA and kernel PCA", "a picture", "—", "missing", "the set is not to be had here")
    if options.pictures:
        _draw(drawn, str(options.pictures))
        rows = [
            (name, what, str(label), *place)
            for name, (*both, y) in drawn.items()
            for what, Z in zip(("PCA", "kernel PCA"), both, strict=True)
            for label, place in zip(y, Z.tolist(), strict=True)
        ]
        save_numbers(options.pictures, "lecture_kernels", ("set", "method", "label", "first", "second"), rows)


def _same(what: str, paper: str, off: float, eigenvalues: np.ndarray) -> Claim:
    return Claim(what, paper, f"{off:.0e} from it", eigenvectors(off, eigenvalues, 2))


def _draw(drawn: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]], folder: str) -> None:
    picture, axes = figure(2, len(drawn), 2.2, 2.1)
    for column, (name, (plain, products, y)) in zip(axes.T, drawn.items(), strict=True):
        for axis, Z, what in zip(column, (plain, products), (name, "kernel PCA, degree 2"), strict=True):
            for label in np.unique(y):
                axis.scatter(*Z[y == label].T, s=3, alpha=0.6)
            axis.set_title(what, fontsize=9)
            axis.set_xticks([])
            axis.set_yticks([])
    axes[0, 0].set_ylabel("PCA")
    save(picture, folder, "lecture_kernels")
