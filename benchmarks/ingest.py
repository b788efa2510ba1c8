"""ingest: how fast rows are learned, beside the one product nobody can do without.

    python benchmarks/ingest.py [--rows N] [--repeats R] [--only NAME]

Prints, for each case, rows/s of the estimator's `partial_fit` (targets parsed, values checked) and of the product, and
their ratio. Batches of 1,000 rows are cut beforehand; sides alternate batch by batch, and a batch's median counts. Cases:

- lda: sparse text (d = 47,236, about 84 nonzeros), 4 classes, beside `X.T @ Y`, Y dense (n, 4). Wanted: 0.4.
- opls: the same rows, 103 labels, about 3 a row, beside `X.T @ Y`, Y dense (n, 103). Wanted: 1.0.
- dense: exact moments (PCA), d = 784, beside `X.T @ X`. Wanted: 0.6.
- one: single rows, d = 47,236, 103 labels. Wanted: 2,000 rows/s.
- freeze: copying the state of opls.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import scipy.sparse as sp

import stream_dr

BATCH = 1000


def text(rows: int, features: int = 47236, words: int = 122, seed: int = 0) -> tuple[sp.csr_matrix, np.ndarray]:
    """Unit-length tf-idf rows (rows, features) of Zipf-distributed words with four topics, about 84 nonzeros a row."""
    random = np.random.default_rng(seed)
    topic = random.choice(4, size=rows, p=[0.47, 0.15, 0.3, 0.08])
    base = 1.0 / np.arange(1, features + 1)
    cumulative = []
    for _ in range(4):
        boost = np.ones(features)
        boost[random.choice(features, features // 20, replace=False)] = 12.0
        cumulative.append(np.cumsum(base * boost) / np.sum(base * boost))
    idf = np.log(1.0 / np.minimum(1.0, base / base.sum() * 114) + 1.0)
    indptr, indices, values = [0], [], []
    for i in range(rows):
        drawn = np.searchsorted(cumulative[topic[i]], random.random(max(5, random.poisson(words))))
        word, count = np.unique(np.minimum(drawn, features - 1), return_counts=True)
        value = (1.0 + np.log(count)) * idf[word]
        indices.append(word)
        values.append(value / np.linalg.norm(value))
        indptr.append(indptr[-1] + len(word))
    data = (np.concatenate(values), np.concatenate(indices).astype(np.int32), np.array(indptr, dtype=np.int32))
    return sp.csr_matrix(data, shape=(rows, features)), topic


def label_lists(rows: int, labels: int = 103, seed: int = 1) -> list[list[int]]:
    """One to five labels a row, three on average."""
    random = np.random.default_rng(seed)
    return [random.choice(labels, random.integers(1, 6), replace=False).tolist() for _ in range(rows)]


def indicator(sets: list[list[int]], labels: int) -> np.ndarray:
    """Dense (rows, labels)."""
    out = np.zeros((len(sets), labels))
    for i, own in enumerate(sets):
        out[i, own] = 1.0
    return out


def cut(X, y):
    """Batches of rows and targets."""
    return [(X[i : i + BATCH], y[i : i + BATCH]) for i in range(0, X.shape[0], BATCH)]


def alternate(repeats: int, *sides: list[Callable[[], object]]) -> list[float]:
    """Seconds of each side's steps: the sum over steps of the median over repeats; step by step in turn."""
    seconds = np.empty((repeats + 1, len(sides), max(map(len, sides))))
    for again in range(repeats + 1):
        for step in range(seconds.shape[2]):
            for side, steps in enumerate(sides):
                start = time.perf_counter()
                steps[step]()
                seconds[again, side, step] = time.perf_counter() - start
    return np.median(seconds[1:], axis=0).sum(axis=1).tolist()


def compare(name: str, rows: int, repeats: int, learn: list[Callable], product: list[Callable]) -> None:
    """Print one case."""
    ours, theirs = alternate(repeats, learn, product)
    print(f"{name:8s} {rows / ours:12,.0f} rows/s {rows / theirs:12,.0f} rows/s {theirs / ours:8.2f}", flush=True)


def sparse_case(name: str, estimator, X, y, Y: np.ndarray, repeats: int) -> None:
    """An estimator on sparse rows beside X.T @ Y."""
    learn = [partial(estimator.partial_fit, *batch) for batch in cut(X, y)]
    product = [partial(lambda rows, own: rows.T @ own, *batch) for batch in cut(X, Y)]
    compare(name, X.shape[0], repeats, learn, product)


def dense_case(rows: int, repeats: int) -> None:
    """Exact moments beside X.T @ X."""
    batches = [own for own, _ in cut(np.random.default_rng(2).normal(size=(rows, 784)) + 3.0, range(rows))]
    pca = stream_dr.PCA()
    learn = [partial(pca.partial_fit, own) for own in batches]
    compare("dense", rows, repeats, learn, [partial(lambda own: own.T @ own, own) for own in batches])


def one_row_case(X, y, repeats: int) -> None:
    """Single rows."""
    opls = stream_dr.OPLS(scatter="diagonal").partial_fit(X[:BATCH], y[:BATCH])
    (seconds,) = alternate(repeats, [partial(opls.partial_fit, X[i], [y[i]]) for i in range(BATCH)])
    print(f"{'one':8s} {BATCH / seconds:12,.0f} rows/s", flush=True)


def freeze_case(X, y, repeats: int) -> None:
    """The state, copied."""
    opls = stream_dr.OPLS(scatter="diagonal").partial_fit(X, y)
    (seconds,) = alternate(repeats, [lambda: opls.state_])
    print(f"{'freeze':8s} {seconds * 1e3:12.1f} ms", flush=True)


def main() -> None:
    """Run the cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20000, help="rows of each case")
    parser.add_argument("--repeats", type=int, default=7, help="measurements of each side")
    parser.add_argument("--only", default="lda,opls,dense,one,freeze", help="cases, comma-separated")
    given = parser.parse_args()
    only = given.only.split(",")
    X, topic = text(given.rows)
    sets = label_lists(given.rows)
    print(f"{'case':8s} {'partial_fit':>19s} {'product':>19s} {'ratio':>8s}")
    if "lda" in only:
        names = np.array(["CCAT", "ECAT", "GCAT", "MCAT"])[topic]
        sparse_case("lda", stream_dr.LDA(scatter="diagonal"), X, names, np.eye(4)[topic], given.repeats)
    if "opls" in only:
        sparse_case("opls", stream_dr.OPLS(scatter="diagonal"), X, sets, indicator(sets, 103), given.repeats)
    if "dense" in only:
        dense_case(given.rows // 2, given.repeats)
    if "one" in only:
        one_row_case(X, sets, given.repeats)
    if "freeze" in only:
        freeze_case(X[:BATCH], sets[:BATCH], given.repeats)


if __name__ == "__main__":
    main()
