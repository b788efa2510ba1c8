"""Subspace chapter, equations 2.3 to 2.36: PCA, LDA, PLS, PLS-DA, LE, LLE, LPP and NPE beside dense solutions as written.

The chapter has no experiments: each equation is solved here with dense matrices and compared with the estimator that cites
it, on wine and breast cancer (scikit-learn's) and sonar, features scaled to [0, 1]; the largest difference of unit vectors,
up to sign, is given. Drawn: the digits 0 to 4 in two columns by each method.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from scipy.linalg import eigh

from benchmarks.papers.claims import Claim, Options
from benchmarks.papers.drawing import figure, save
from benchmarks.papers.sets import available, load, scaled
from benchmarks.papers.verdicts import Interval, identity, within
from stream_dr import LDA, LLE, LPP, NPE, PCA, PLSDA, SPCA, LaplacianEigenmaps

SETS = ("wine", "breast cancer", "sonar")
NEAR = 10
DEGREES = 10.0
"""Angle of a slight difference."""

Difference = Callable[[np.ndarray, np.ndarray], float]
"""(X, y) → the largest difference of ours and the equation's unit vectors."""


def run(options: Options) -> Iterator[Claim]:
    """The equations, one claim each, and the picture."""
    names = [name for name in SETS[: 1 if options.quick else None] if available(name)]
    sets = [(scaled(load(name)[0]), load(name)[1]) for name in names]
    for equation, paper, what, difference, reason in EQUATIONS:
        off = max(difference(X, y) for X, y in sets)
        ours = f"{what} differs by {off:.0e} at most ({', '.join(names)})"
        yield Claim(equation, paper, ours, identity(off), reason)
    yield from _of_plsda(sets, names)
    yield Claim(
        "global-local (graph-Laplacian) PLS-DA",
        "the title of the thesis",
        "–",
        "missing",
        "The chapter ends before it: its objective is not in the text at hand, and it is not guessed at.",
    )
    if options.pictures:
        _draw(options.pictures)


def apart(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Largest difference of columns (m, p) of unit length, up to sign."""
    a, b = ours / np.linalg.norm(ours, axis=0), theirs / np.linalg.norm(theirs, axis=0)
    return float(np.abs(a - b * np.sign((a * b).sum(axis=0))).max())


def centred(A: np.ndarray) -> np.ndarray:
    """Less the mean of the rows."""
    return A - A.mean(axis=0)


def indicator(y: np.ndarray) -> np.ndarray:
    """The class membership matrix (n, classes) of equation 2.21."""
    return (y[:, None] == np.unique(y)).astype(float)


def _pca(X: np.ndarray, y: np.ndarray) -> float:
    return apart(PCA(3).fit(X).components_.T, np.linalg.eigh(np.cov(X.T))[1][:, ::-1][:, :3])


def _lda(X: np.ndarray, y: np.ndarray) -> float:
    between, within = np.zeros((2, X.shape[1], X.shape[1]))
    for label in np.unique(y):
        own = X[y == label]
        shift = own.mean(axis=0) - X.mean(axis=0)
        between += len(own) * np.outer(shift, shift)
        within += centred(own).T @ centred(own)
    p = len(np.unique(y)) - 1
    return apart(LDA().fit(X, y).components_.T, eigh(between, within)[1][:, ::-1][:, :p])


def nipals(X: np.ndarray, Y: np.ndarray, p: int) -> np.ndarray:
    """Scores t (n, p) of equations 2.15 to 2.19, each iterated until t stands still."""
    X, Y, scores = centred(X), centred(Y), []
    for _ in range(p):
        u, t = Y[:, np.argmax((Y**2).sum(axis=0))], np.zeros(len(X))
        for _ in range(10_000):
            w = X.T @ u
            w /= np.linalg.norm(w)
            before, t = t, X @ w
            c = Y.T @ t
            u = Y @ (c / np.linalg.norm(c))
            if np.abs(t - before).max() <= 1e-15 * np.abs(t).max():
                break
        scores.append(t)
        X, Y = X - np.outer(t, t @ X) / (t @ t), Y - np.outer(t, t @ Y) / (t @ t)
    return np.column_stack(scores)


def _nipals(X: np.ndarray, y: np.ndarray) -> float:
    return apart(PLSDA(4).fit_transform(X, y), nipals(X, indicator(y), 4))


def _images(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """X̄ᵀ Y (features, classes)."""
    return np.asarray(centred(X).T @ indicator(y))


def _eigenvectors(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Equation 2.24: those of X̄ᵀ Y Yᵀ X̄ (features, classes − 1)."""
    images = _images(X, y)
    return np.asarray(np.linalg.eigh(images @ images.T)[1][:, ::-1][:, : images.shape[1] - 1])


def _plsda(X: np.ndarray, y: np.ndarray) -> float:
    theirs = _eigenvectors(X, y)
    return max(apart(SPCA().fit(X, y).components_.T, theirs), apart(PLSDA(1).fit(X, y).components_.T, theirs[:, :1]))


def graph(X: np.ndarray, t: float | None = None) -> np.ndarray:
    """S (n, n) of equations 2.25 and, with t, 2.35: an edge where either is among the other's nearest others."""
    squared = ((X[:, None] - X) ** 2).sum(axis=2)
    far = np.where(np.eye(len(X), dtype=bool), np.inf, squared)
    near = far <= np.sort(far, axis=1)[:, NEAR - 1 : NEAR]
    return np.where(near | near.T, 1.0 if t is None else np.exp(-squared / t), 0.0)


def _laplacian(X: np.ndarray, y: np.ndarray) -> float:
    S = graph(X)
    values, vectors = eigh(np.diag(S.sum(axis=1)) - S, np.diag(S.sum(axis=1)))
    model = LaplacianEigenmaps(2, n_neighbors=NEAR, edges="or", scaling="source").fit(X)
    parts = model.parts_
    off = float(np.abs(model.eigenvalues_ - values[parts : parts + 2]).max())
    return max(apart(model.embedding_, vectors[:, parts : parts + 2]), off)


def _lpp(X: np.ndarray, y: np.ndarray) -> float:
    S, rows = graph(X, 0.5), centred(X)
    D = np.diag(S.sum(axis=1))
    values, vectors = eigh(rows.T @ (D - S) @ rows, rows.T @ D @ rows)
    model = LPP(2, n_neighbors=NEAR, edges="or", temperature=0.5, scaling="source").fit(X)
    return max(apart(model.components_.T, vectors[:, :2]), float(np.abs(model.eigenvalues_ - values[:2]).max()))


def barycentric(X: np.ndarray) -> np.ndarray:
    """S (n, n) of equation 2.31: each row's least-squares weights, of sum 1, in its nearest others."""
    S, far = np.zeros((len(X), len(X))), ((X[:, None] - X) ** 2).sum(axis=2) + np.diag(np.full(len(X), np.inf))
    for i, near in enumerate(np.argsort(far, axis=1)[:, :NEAR]):
        gram = (X[near] - X[i]) @ (X[near] - X[i]).T
        weights = np.linalg.solve(gram + 1e-3 * np.trace(gram) * np.eye(NEAR), np.ones(NEAR))
        S[i, near] = weights / weights.sum()
    return S


def _lle(X: np.ndarray, y: np.ndarray) -> float:
    off = np.eye(len(X)) - barycentric(X)
    return apart(LLE(2, n_neighbors=NEAR).fit(X).embedding_, np.linalg.eigh(off.T @ off)[1][:, 1:3])


def _npe(X: np.ndarray, y: np.ndarray) -> float:
    rows = centred(X)
    off = (np.eye(len(X)) - barycentric(X)) @ rows
    return apart(NPE(2, n_neighbors=NEAR).fit(X).components_.T, eigh(off.T @ off, rows.T @ rows)[1][:, :2])


EQUATIONS: tuple[tuple[str, str, str, Difference, str], ...] = (
    ("equation 2.6, PCA", "S w = λ w", "PCA", _pca, ""),
    (
        "equations 2.7 to 2.12, LDA",
        "Sb w = λ Sw w",
        "LDA",
        _lda,
        "Ours inverts Sb + Sw, which has the same eigenvectors.",
    ),
    ("equations 2.13 to 2.19, PLS", "the steps of NIPALS", "PLSDA", _nipals, "Scores, iterated until t stands still."),
    (
        "equations 2.20 to 2.24, PLS-DA",
        "X̄ᵀYYᵀX̄ w = λ w",
        "SPCA (PLSDA's first component, too)",
        _plsda,
        "All eigenvectors at once are SPCA's.",
    ),
    (
        "equations 2.25 to 2.29, LE",
        "L z = λ D z",
        'LaplacianEigenmaps(edges="or")',
        _laplacian,
        "With its eigenvalues; a row is not its own neighbour, and every edge has its whole weight.",
    ),
    (
        "equations 2.31 to 2.34, LLE",
        "(I − S)ᵀ(I − S) z = λ z",
        "LLE",
        _lle,
        "With reg = 1e-3 in both: the text does not regularise.",
    ),
    (
        "equations 2.35 and 2.36, LPP",
        "min Σ (z_i − z_j)² S_ij, z = Xᵀw",
        'LPP(edges="or")',
        _lpp,
        "The text ends before LPP's constraint: zᵀ D z = 1 as in 2.28, rows centred.",
    ),
    (
        "NPE, whose equations are not in the text",
        "named only",
        "NPE",
        _npe,
        "Xᵀ(I − S)ᵀ(I − S)X w = λ XᵀX w of [NPE], S of 2.31.",
    ),
)


def _of_plsda(sets: list[tuple[np.ndarray, np.ndarray]], names: list[str]) -> Iterator[Claim]:
    """What deflation changes, and how far equation 2.24 is from the between-class scatter."""
    second, between = [], []
    for X, y in sets:
        theirs, counts = _eigenvectors(X, y), indicator(y).sum(axis=0)
        between.append(_degrees(theirs[:, 0], np.linalg.svd(_images(X, y) / np.sqrt(counts))[0][:, 0]))
        if theirs.shape[1] > 1:
            second.append(_degrees(theirs[:, 1], PLSDA(2).fit(X, y).components_[1]))
    yield Claim(
        "NIPALS' second component beside equation 2.24's second eigenvector",
        "(both called PLS-DA)",
        f"{', '.join(f'{angle:.0f}°' for angle in second)} apart (wine; two classes have one eigenvector)",
        "differs",
        "Deflation makes components uncorrelated; eigenvectors are orthogonal. The first component is the same.",
    )
    yield Claim(
        "equation 2.24 is a slightly altered between-class scatter",
        "slightly",
        ", ".join(f"{name} {angle:.1f}°" for name, angle in zip(names, between, strict=True))
        + " between their first vectors",
        within(Interval(max(between), min(between), max(between)), 0.0, DEGREES),
        "X̄ᵀYYᵀX̄ = Σ n_j² (m_j − x̄)(m_j − x̄)ᵀ has n_j² where Sb has n_j: with two classes, or equal ones, the same vectors.",
    )


def _degrees(a: np.ndarray, b: np.ndarray) -> float:
    cosine = abs(float(a @ b)) / float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(np.degrees(np.arccos(min(cosine, 1.0))))


def _draw(folder: Path) -> None:
    X, y = load("digits")
    X, y = X[y < 5] / 16, y[y < 5]
    methods = {
        "PCA": PCA(2),
        "LDA, shrinkage 0.1": LDA(2, shrinkage=0.1),
        "PLS-DA, NIPALS": PLSDA(2),
        "PLS-DA, eq. 2.24 (SPCA)": SPCA(2),
        'Laplacian eigenmaps, "or"': LaplacianEigenmaps(2, edges="or"),
        "LLE": LLE(2),
        'LPP, "or"': LPP(2, edges="or"),
        "NPE": NPE(2),
    }
    picture, axes = figure(2, 4, 2.2, 2.2)
    for axis, (name, model) in zip(axes.flat, methods.items(), strict=True):
        Z = model.fit(X, y).transform(X)
        low, high = np.percentile(Z, [1, 99], axis=0)
        axis.scatter(*np.clip(Z, low, high).T, c=y, cmap="tab10", s=3, linewidths=0)
        axis.set_title(name, fontsize=7)
        axis.set_xticks([])
        axis.set_yticks([])
    save(picture, str(folder), "subspace_equations")
