"""WMV lecture, WMV as a graph's Laplacian: PCA and MMC as cases, clusters from its eigenvectors, rows without labels.

- ½ Σ_ij C_ij (wᵀ(x_i − x_j))² by the (n, n) Laplacian, against WMV's sums: C = 1/n, C = 1/n − 2/n_k, two parameters, a
  weight for every pair of classes.
- The three graphs (ε, k nearest neighbours joined by "or" and by "average", all rows) with weights 1 and the heat kernel:
  k-means on the first k eigenvectors, adjusted Rand index, beside k-means on the rows and scikit-learn's SpectralClustering.
- Semi-supervised: places of all rows, labels of a few, against projections learned from the labelled rows alone.
"""

import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial.distance import pdist, squareform
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.datasets import make_blobs, make_circles, make_moons
from sklearn.metrics import adjusted_rand_score
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors
from threadpoolctl import threadpool_limits

from benchmarks.papers.claims import Claim, Options
from benchmarks.papers.drawing import figure, save, save_numbers
from benchmarks.papers.sets import load
from benchmarks.papers.verdicts import SPLITS, identity, order, paired_interval, within
from stream_dr import LDA, WMV, LaplacianEigenmaps

ROWS = 300
GRAPH, FOUND = "10-NN or, heat", 0.95
"""Graph by which clusters are judged, and the least adjusted Rand index of clusters that are found."""


class Clusters(NamedTuple):
    """Rows, the cluster of each, and how many there are."""

    X: np.ndarray
    truth: np.ndarray
    count: int


def sets(seed: int) -> dict[str, Clusters]:
    """Two moons, two rings, three arms, three blobs of other widths, three blobs drawn out."""
    rng = np.random.default_rng(seed)
    moons, rings = (
        make_moons(ROWS, noise=0.06, random_state=seed),
        make_circles(ROWS, factor=0.4, noise=0.05, random_state=seed),
    )
    uneven = make_blobs(ROWS, centers=[[-5, -4], [0, 0], [6, 3]], cluster_std=[0.6, 1.2, 0.4], random_state=seed)
    drawn = make_blobs(ROWS, centers=[[-4, 0], [0, 0], [4, 0]], cluster_std=0.6, random_state=seed)
    arm = np.arange(ROWS) % 3
    turn = np.sqrt(rng.uniform(0.08, 1.0, ROWS)) * 3.2
    angle = turn + 2 * np.pi * arm / 3
    arms = np.column_stack([turn * np.cos(angle), turn * np.sin(angle)]) + 0.05 * rng.normal(size=(ROWS, 2))
    return {
        "two moons": Clusters(*moons, 2),
        "two rings": Clusters(*rings, 2),
        "three arms": Clusters(arms, arm, 3),
        "three blobs of other widths": Clusters(*uneven, 3),
        "three blobs drawn out": Clusters(drawn[0] @ np.array([[1.0, 0.9], [0.0, 1.5]]), drawn[1], 3),
    }


def graphs(X: np.ndarray) -> dict[str, dict[str, Any]]:
    """Options of LaplacianEigenmaps for the lecture's graphs, by the rows' distances alone."""
    longest = float(minimum_spanning_tree(squareform(pdist(X))).max()) * (1 + 1e-9)  # the least ε that leaves one part
    third = float(NearestNeighbors(n_neighbors=3).fit(X).kneighbors()[0][:, 2].mean())
    every = {"n_neighbors": len(X), "edges": "or", "weights": "heat", "temperature": 2 * third**2}
    return {
        "ε": {"radius": longest},
        "ε, heat": {"radius": longest, "weights": "heat"},
        "10-NN or": {"edges": "or"},
        "10-NN or, heat": {"edges": "or", "weights": "heat"},
        "10-NN average": {},
        "10-NN average, heat": {"weights": "heat"},
        "all rows, heat": every,
    }


def clustered(rows: Clusters, options: dict[str, Any]) -> tuple[float, int]:
    """Adjusted Rand index of k-means on the first k eigenvectors, and the parts of the graph."""
    model = LaplacianEigenmaps(rows.count, reservoir=len(rows.X), drop_first=False, scaling="source", **options).fit(
        rows.X
    )
    found = KMeans(rows.count, n_init=10, random_state=0).fit_predict(model.transform(rows.X))
    return float(adjusted_rand_score(rows.truth, found)), model.parts_


def laplacian(X: np.ndarray, C: np.ndarray) -> np.ndarray:
    """Eigenvalues above 0 of Xᵀ L X, largest first, L = D − C."""
    values = np.linalg.eigvalsh(X.T @ (np.diag(C.sum(axis=1)) - C) @ X)[::-1]
    return values[values > 1e-9 * np.abs(values).max()]


def run(options: Options) -> Iterator[Claim]:
    """The cases of WMV, the graphs' clusters, the rows without labels."""
    yield from _cases()
    with threadpool_limits(1):  # small problems: threads would wait for each other
        yield from _spectral(options)
        yield from _few_labels(options.quick)


def _cases() -> Iterator[Claim]:
    X, labels = load("wine")
    X, y = (X - X.mean(axis=0)) / X.std(axis=0), labels.astype(int)
    n, same, sizes = len(y), y[:, None] == y, np.bincount(y)[y]
    pairs = [[0, 0, -2.0], [0, 1, 0.5], [0, 2, 1.0], [1, 1, 0.3], [1, 2, -0.2], [2, 2, -1.0]]
    C = np.zeros((3, 3))
    for a, b, weight in pairs:
        C[a, b] = C[b, a] = weight
    cases = {
        "C = 1/n, PCA": (WMV(alpha=0.0, pairs="share"), np.full((n, n), 1.0 / n)),
        "C = 1/n − 2/n_k, MMC": (WMV(alpha=-2.0, pairs="share"), 1.0 / n - 2.0 * same / sizes),
        "α = −1, β = 1": (WMV(), np.where(same, -1.0, 1.0)),
        "a weight for every pair of classes": (WMV(pair_weights=pairs), C[y][:, y]),
    }
    for what, (wmv, weights) in cases.items():
        for start in range(0, n, 20):
            wmv.partial_fit(X[start : start + 20], y[start : start + 20])
        expected = laplacian(X, weights)
        same_number = len(expected) == len(wmv.eigenvalues_)
        off = float(np.abs(wmv.eigenvalues_ - expected).max() / expected[0]) if same_number else np.inf
        yield Claim(f"wine, {what}: WMV from a stream", "eigenvectors of X L Xᵀ", f"{off:.0e} from the (n, n) Laplacian's",
                    identity(off), "eigenvalues above 0")  # fmt: skip


def _spectral(options: Options) -> Iterator[Claim]:
    seeds = range(2 if options.quick else 5)
    found: dict[str, dict[str, list[float]]] = {}
    parts: dict[str, list[int]] = {}
    for seed in seeds:
        for name, rows in sets(seed).items():
            to = found.setdefault(name, {})
            plain = KMeans(rows.count, n_init=10, random_state=0).fit_predict(rows.X)
            peer = SpectralClustering(rows.count, affinity="nearest_neighbors", n_neighbors=10, random_state=0)
            to.setdefault("k-means", []).append(adjusted_rand_score(rows.truth, plain))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # a graph in parts, which is told here
                to.setdefault("scikit-learn", []).append(adjusted_rand_score(rows.truth, peer.fit_predict(rows.X)))
            for graph, given in graphs(rows.X).items():
                value, pieces = clustered(rows, given)
                to.setdefault(graph, []).append(value)
                parts.setdefault(name + graph, []).append(pieces)
    for name, values in found.items():
        means = {what: float(np.mean(v)) for what, v in values.items()}
        told = ", ".join(f"{what} {value:.2f}" for what, value in means.items())
        verdict = within(paired_interval(np.array(values[GRAPH]), 0.0), FOUND, np.inf)
        most = {what: max(parts[name + what]) for what in means if name + what in parts}
        apart = ", ".join(f"{what} {count}" for what, count in most.items() if count > 1)
        yield Claim(f"{name}: clusters by the first k eigenvectors, adjusted Rand index", "finds clusters", told,
                    verdict, f"judged by {GRAPH}; parts of the graph: {apart or '1 in all'}")  # fmt: skip
    if options.pictures:
        _draw(str(options.pictures))
        numbers = [
            (name, what, seed, value)
            for name, values in found.items()
            for what, indices in values.items()
            for seed, value in enumerate(map(float, indices))
        ]
        save_numbers(options.pictures, "lecture_graphs", ("set", "graph", "seed", "adjusted Rand index"), numbers)


def _few_labels(quick: bool) -> Iterator[Claim]:
    """Digits, 5 labelled rows of each: 1-NN on the places of all rows, which need no labels, against labelled rows alone."""
    X, y = (a[:400] if quick else a for a in load("digits"))
    runs = 2 if quick else SPLITS
    places = LaplacianEigenmaps(15, n_neighbors=10, reservoir=len(X)).fit(X).transform(X)
    errors: dict[str, list[float]] = {"rows": [], "LDA of the labelled": [], "places of all": []}
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        known = np.concatenate([rng.choice(np.flatnonzero(y == label), 5, replace=False) for label in np.unique(y)])
        others = np.setdiff1d(np.arange(len(y)), known)
        lda = LDA(shrinkage=0.5).fit(X[known], y[known])
        for name, Z in (("rows", X), ("LDA of the labelled", lda.transform(X)), ("places of all", places)):
            guessed = KNeighborsClassifier(1).fit(Z[known], y[known]).predict(Z[others])
            errors[name].append(100 * float(np.mean(guessed != y[others])))
    told = ", ".join(f"{name} {np.mean(e):.1f} ± {np.std(e):.1f} %" for name, e in errors.items())
    found = {name: np.array(e) for name, e in errors.items()}
    lead = (found["rows"] + found["LDA of the labelled"]) / 2 - found["places of all"]
    share = len(others) / len(known)
    yield Claim(f"digits, 50 labels for {len(y):,} rows: error of 1-NN", "graphs allow semi-supervised analysis", told,
                order(lead, share), f"mean of {runs} draws, test rows {share:.0f} times the labelled ones")  # fmt: skip


def _draw(folder: str) -> None:
    made = sets(0)
    picture, axes = figure(2, len(made), 2.0, 2.0)
    for column, (name, rows) in zip(axes.T, made.items(), strict=True):
        plain = KMeans(rows.count, n_init=10, random_state=0).fit_predict(rows.X)
        model = LaplacianEigenmaps(rows.count, reservoir=len(rows.X), drop_first=False, scaling="source", edges="or")
        found = KMeans(rows.count, n_init=10, random_state=0).fit_predict(model.fit_transform(rows.X))
        for axis, labels in zip(column, (plain, found), strict=True):
            axis.scatter(*rows.X.T, s=3, c=labels, cmap="brg")
            axis.set_xticks([])
            axis.set_yticks([])
        column[0].set_title(name.replace(" of ", "\nof ").replace(" drawn", "\ndrawn"), fontsize=9)
    axes[0, 0].set_ylabel("k-means")
    axes[1, 0].set_ylabel("10-NN graph, or")
    save(picture, folder, "lecture_graphs")
