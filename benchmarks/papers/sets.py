"""The data sets of the papers: rows (n, d) float64 and one label (n,) a row, of yeast and scene Y (n, k) of 0 and 1.

Iris, wine, optdigits (8 × 8 digits) and breast cancer come with scikit-learn, image segments and phishing with river; the
others are read from STREAM_DR_DATA; XOR and spirals are made here. Sets of text (`load_text`) are
CSR rows.
"""

import gzip
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from sklearn import datasets as shipped
from sklearn.preprocessing import normalize

from stream_dr.batch.block import Block
from stream_dr.datasets.generate import generate_rcv1_like
from stream_dr.datasets.readers.matrices import read_matlab
from stream_dr.datasets.sources import open_source

Set = tuple[np.ndarray, np.ndarray]

SHIPPED: dict[str, Callable[..., Set]] = {
    "iris": shipped.load_iris,
    "wine": shipped.load_wine,
    "digits": shipped.load_digits,
    "breast cancer": shipped.load_breast_cancer,
}

TIE = 1e-12
"""Difference of squared distances below which two neighbours tie, relative to the longest row's square."""

RIVER = {"image segments": "ImageSegments", "phishing": "Phishing"}


def available(name: str) -> bool:
    """Whether `load(name)` works here."""
    return name in SHIPPED or name in RIVER or name in MADE or (name in FILES and _path(FILES[name][0]) is not None)


def load(name: str, seed: int = 0) -> Set:
    """Rows and labels of a set; seed is for the made ones."""
    if name in SHIPPED:
        X, y = SHIPPED[name](return_X_y=True)
        return np.asarray(X, dtype=float), np.asarray(y)
    if name in RIVER:
        from river import datasets

        rows, labels = zip(*getattr(datasets, RIVER[name])(), strict=True)
        return np.array([list(row.values()) for row in rows], dtype=float), np.array([str(label) for label in labels])
    if name in MADE:
        return MADE[name](seed)
    path = _path(FILES[name][0])
    if path is None:
        raise FileNotFoundError(f"{name}: set STREAM_DR_DATA to the folder that has {FILES[name][0]}")
    return FILES[name][1](path)


def scaled(X: np.ndarray) -> np.ndarray:
    """Every feature to [0, 1], as the SRP paper does (constant ones to 0)."""
    low, high = X.min(axis=0), X.max(axis=0)
    return (X - low) / np.where(high > low, high - low, 1.0)


def split(y: np.ndarray, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices of a random training part of this share, and of the rest."""
    order = np.random.default_rng(seed).permutation(len(y))
    n = round(share * len(y))
    return order[:n], order[n:]


def halves(X: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices of a random half of the distinct rows, and of the others: equal rows are in one half."""
    group = np.unique(X, axis=0, return_inverse=True)[1].ravel()
    first = np.random.default_rng(seed).permutation(group.max() + 1) * 2 <= group.max()
    return np.flatnonzero(first[group]), np.flatnonzero(~first[group])


def error(train: np.ndarray, y: np.ndarray, test: np.ndarray, truth: np.ndarray) -> float:
    """Return the expected error rate of 1-NN.

    Nearest rows at one distance count by the share of them that has another label. Without a
    column it is the error of guessing the largest class.
    """
    if not train.shape[1]:
        labels, counts = np.unique(y, return_counts=True)
        return float(np.mean(truth != labels[counts.argmax()]))
    from sklearn.neighbors import NearestNeighbors

    centre = train.mean(axis=0)
    train, test = train - centre, test - centre
    tie = TIE * max(float((rows**2).sum(axis=1).max()) for rows in (train, test))
    distances, near = NearestNeighbors(n_neighbors=2).fit(train).kneighbors(test)
    wrong = (y[near[:, 0]] != truth).astype(float)
    tied = np.flatnonzero(distances[:, 1] ** 2 - distances[:, 0] ** 2 <= tie)

    # A row at a time would be slow, and all at once too large.
    for part in np.array_split(tied, 1 + len(tied) * len(train) // 10_000_000):
        squared = (train**2).sum(axis=1) - 2 * test[part] @ train.T
        nearest = squared <= squared.min(axis=1, keepdims=True) + tie
        wrong[part] = (nearest & (y != truth[part, None])).sum(axis=1) / nearest.sum(axis=1)
    return float(wrong.mean())


def _xor(seed: int, n: int = 500) -> Set:
    """Four clusters at the corners of a square, opposite ones of one class, and 8 columns of noise [SRP §3.1]."""
    rng = np.random.default_rng(seed)
    corner = rng.integers(0, 2, size=(n, 2))
    X = np.hstack([corner + 0.15 * rng.normal(size=(n, 2)), rng.random((n, 8))])
    return X, corner[:, 0] ^ corner[:, 1]


def _spirals(seed: int, n: int = 500) -> Set:
    """Two spiral arms, a class each, and 8 columns of noise [SRP §3.1]."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    turn = np.sqrt(rng.random(n)) * 3 * np.pi
    arm = np.column_stack([turn * np.cos(turn + np.pi * y), turn * np.sin(turn + np.pi * y)])
    return np.hstack([arm + 0.2 * rng.normal(size=(n, 2)), rng.random((n, 8))]), y


MADE: dict[str, Callable[[int], Set]] = {"xor": _xor, "spirals": _spirals}


def _last_column(path: Path) -> Set:
    cells = [line.split(",") for line in path.read_text().splitlines() if line.strip()]
    return np.array([[float(v) for v in row[:-1]] for row in cells]), np.array([row[-1] for row in cells])


def _bupa(path: Path) -> Set:
    table = np.array([[float(v) for v in line.split(",")] for line in path.read_text().splitlines()[1:]])
    return table[:, :-1], table[:, -1].astype(int)


def _letter(path: Path) -> Set:
    cells = [line.split() for line in path.read_text().splitlines()[1:] if line.strip()]
    return np.array([[float(v) for v in row[:-1]] for row in cells]), np.array([row[-1] for row in cells])


def _monks(path: Path) -> Set:
    """Training and test part together, the class first."""
    rows = []
    for part in (path, path.with_suffix(".test")):
        lines = part.read_text().splitlines()
        at = next(i for i, line in enumerate(lines) if line.lower().startswith("@data"))
        rows += [[int(v) for v in line.split(",")] for line in lines[at + 1 :] if line.strip()]
    table = np.array(rows)
    return table[:, 1:].astype(float), table[:, 0]


def _isolet(path: Path) -> Set:
    from scipy.io import loadmat

    table = loadmat(path)
    return table["X"].astype(float), table["Y"].ravel().astype(int)


def _mnist(path: Path) -> Set:
    pixels = np.frombuffer(gzip.decompress(path.read_bytes())[16:], dtype=np.uint8).reshape(10_000, 784)
    labels = path.with_name("t10k-labels-idx1-ubyte.gz")
    return pixels / 255.0, np.frombuffer(gzip.decompress(labels.read_bytes())[8:], dtype=np.uint8)


def _optdigits(path: Path) -> Set:
    """Training part (of the 3,823 rows as many as the file has) and test part."""
    table = np.vstack([np.loadtxt(p, delimiter=",") for p in (path, path.with_suffix(".tes"))])
    return table[:, :-1], table[:, -1].astype(int)


def _usps(path: Path) -> Set:
    """Training and test part, pixels in [0, 1]."""
    import h5py

    with h5py.File(path) as file:
        X, y = (np.concatenate([file[f"{part}/{what}"] for part in ("train", "test")]) for what in ("data", "target"))
    return X.astype(float), y


def _mulan(path: Path) -> Set:
    """Training and test part, labels in the order of MULAN's XML."""
    from stream_dr.datasets.readers.mulan import read_arff, read_mulan_label_names

    names = read_mulan_label_names(path.with_name(f"{path.parent.name}.xml"))
    blocks = [
        b
        for part in ("train", "test")
        for b in read_arff(path.with_name(path.name.replace("train", part)), labels=names)
    ]
    Y = np.array([[name in labels for name in names] for b in blocks for labels in b.y.targets_by_row()], dtype=float)
    return np.vstack([b.X for b in blocks]), Y


def _news20(path: Path) -> Set:
    """Counts, CSR."""
    from scipy.io import loadmat

    table = loadmat(path)
    return table["fea"].tocsr().astype(float), table["gnd"].ravel().astype(int)


FILES: dict[str, tuple[str, Callable[[Path], Set]]] = {
    "ionosphere": ("uci/uci.ionosphere.data", _last_column),
    "sonar": ("uci/sonar.csv", _last_column),
    "bupa": ("uci/bupa.data", _bupa),
    "letter": ("uci/letter-recognition.data", _letter),
    "monks-1": ("uci/monks-1.train", _monks),
    "monks-2": ("uci/monks-2.train", _monks),
    "monks-3": ("uci/monks-3.train", _monks),
    "isolet part": ("isolet_part/Isolet.mat", _isolet),
    "optdigits": ("uci/optdigits.tra", _optdigits),
    "USPS": ("usps/usps.h5", _usps),
    "yeast": ("yeast/yeast-train.arff", _mulan),
    "scene": ("scene/scene-train.arff", _mulan),
    "news20": ("news20/20Newsgroups.mat", _news20),
    "MNIST test set": ("mnist_t10k/t10k-images-idx3-ubyte.gz", _mnist),
}


NEWS20, RCV1_FRAGMENT, RCV1_LIKE = "news20, 4 top groups", "RCV1 fragment, CCAT or not", "generated rcv1-like, 4 topics"
NEWS20_TOP = {"comp": (2, 6), "rec": (8, 11), "sci": (12, 15), "talk": (17, 20)}
"""First and last class of the four top-level groups that have most rows."""


def load_text(name: str, rows: int | None = None) -> Set | None:
    """CSR rows and labels of NEWS20 (raw counts: see `tfidf`), RCV1_FRAGMENT or RCV1_LIKE (`rows` of them are generated);
    None where it is not to be had here."""
    if name == RCV1_LIKE:
        return _stacked(generate_rcv1_like(rows or 25_000, "top4", seed=1))
    if name == RCV1_FRAGMENT:
        parts = [_path(f"rcv1_fragment/{part}") for part in ("rcv1_small.dat", "rcv1_small_test.data")]
        found = [part for part in parts if part]
        return _stacked(open_source(found, "vw", n_features=47_236).blocks()) if len(found) == 2 else None
    path = _path("news20/20Newsgroups.mat")
    if path is None:
        return None
    X, y = _stacked(open_source(path).blocks())
    group = np.full(y.max() + 1, "", dtype=object)
    for label, (first, last) in NEWS20_TOP.items():
        group[first : last + 1] = label
    kept = np.flatnonzero(group[y] != "")
    return X[kept], group[y[kept]].astype(str)


def news20_parts() -> tuple[Set, Set]:
    """Return CSR rows and labels of the 20 classes of news20, before its date and after it.

    The rows are unit-norm tf-idf, by the frequencies of the rows before the date.
    """
    path = _path(FILES["news20"][0])
    if path is None:
        raise FileNotFoundError(f"news20: set STREAM_DR_DATA to the folder that has {FILES['news20'][0]}")
    (X, y), (T, truth) = (_stacked(read_matlab(path, subset=subset)) for subset in ("trainIdx", "testIdx"))
    train, test = tfidf(X, T)
    return (train, y), (test, truth)


def tfidf(train: sp.csr_matrix, test: sp.csr_matrix) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Return counts as unit-norm tf-idf rows, both by the frequencies of the training rows.

    A word weighs (1 + log count) · log(documents / documents with the word).
    """
    documents = np.bincount(train.indices, minlength=train.shape[1])
    idf = np.log(train.shape[0] / np.maximum(documents, 1)) * (documents > 0)

    def weighted(counts: sp.csr_matrix) -> sp.csr_matrix:
        rows = sp.csr_matrix(counts, copy=True)
        rows.data = (1 + np.log(rows.data)) * idf[rows.indices]
        return normalize(rows)

    return weighted(train), weighted(test)


def _stacked(blocks: Iterable[Block]) -> Set:
    kept = list(blocks)
    return sp.vstack([b.X for b in kept], format="csr"), np.concatenate([b.y.targets_by_row() for b in kept])


def _path(name: str) -> Path | None:
    folder = os.environ.get("STREAM_DR_DATA")
    path = Path(folder or ".") / name
    return path if folder and path.is_file() else None
