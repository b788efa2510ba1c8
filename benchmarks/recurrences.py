"""CCIPCA and IncrementalSKM beside the products any method must do, gensim LSI and IncrementalPCA; ratios in one run.

    python benchmarks/recurrences.py            all of it, about five minutes
    python benchmarks/recurrences.py text       sparse rows, d = 47,236: products, gensim LSI, IncrementalPCA
    python benchmarks/recurrences.py dense      d = 784, p = 20: IncrementalPCA, exact moments
    python benchmarks/recurrences.py one        one row a call, and the river adapter
    python benchmarks/recurrences.py energy     energy captured, beside the optimum's and gensim's
    python benchmarks/recurrences.py parts      where a row's time goes
    python benchmarks/recurrences.py beside     sparse rows alone, and while another process copies arrays of 64 MB

All learn the same 1,000-row batches, cut beforehand, through `partial_fit`, label parsing included. Rounds alternate, so a
busy machine slows all alike; the median is printed. Needs the extra [bench] for gensim.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, svds
from threadpoolctl import threadpool_limits

import stream_dr
from stream_dr.datasets.generate import generate_rcv1_like
from stream_dr.statistics.recurrences.row_products import add_row_to_basis, write_sparse_row_products

Batches = list[tuple[Any, list[str]]]

COPIER = "import numpy as np\na = np.ones(1 << 23)\nb = a.copy()\nprint(flush=True)\nwhile True: b[:] = a"


def text(rows: int) -> Batches:
    """1,000-row batches of generated text rows with one of four labels."""
    blocks = list(generate_rcv1_like(rows, "top4", seed=0))
    return [(block.X, [str(label) for label in block.y.targets_by_row()]) for block in blocks]


def digits(rows: int) -> Batches:
    """1,000-row batches of dense rows (rows, 784) with a decaying spectrum."""
    random = np.random.default_rng(0)
    basis = random.normal(size=(100, 784)) * (0.93 ** np.arange(100))[:, None]
    X = random.normal(size=(rows, 100)) @ basis + 0.05 * random.normal(size=(rows, 784)) + 1.0
    return [(X[i : i + 1000], []) for i in range(0, rows, 1000)]


def learner(make: Callable[[], Any], labels: bool = False) -> Callable[[Batches], None]:
    """Learns the batches from nothing through partial_fit."""

    def run(batches: Batches) -> None:
        estimator = make()
        for X, y in batches:
            estimator.partial_fit(X, y) if labels else estimator.partial_fit(X)

    return run


def products(columns: int) -> Callable[[Batches], None]:
    """X·V and Xᵀ·C with scipy, nothing else."""

    def run(batches: Batches) -> None:
        V = np.random.default_rng(0).normal(size=(batches[0][0].shape[1], columns))
        for X, _ in batches:
            X.T @ (X @ V)

    return run


def lsi(components: int) -> Callable[[Batches], None]:
    """gensim's one-pass LSI, a batch a chunk."""

    def run(batches: Batches) -> None:
        fit_lsi(batches, components)

    return run


def fit_lsi(batches: Batches, components: int) -> Any:
    """gensim's LsiModel after all batches."""
    from gensim.models import LsiModel

    names = {i: str(i) for i in range(batches[0][0].shape[1])}
    model = LsiModel(id2word=names, num_topics=components)
    for X, _ in batches:
        model.add_documents(X.T.tocsc())
    return model


def incremental_pca(components: int) -> Callable[[Batches], None]:
    """scikit-learn's IncrementalPCA; sparse batches densified, as it needs them."""
    from sklearn.decomposition import IncrementalPCA

    def run(batches: Batches) -> None:
        model = IncrementalPCA(components)
        for X, _ in batches:
            model.partial_fit(X.toarray() if sp.issparse(X) else X)

    return run


def compare(
    title: str, batches: Batches, runs: Sequence[tuple[str, Callable[[Batches], None], int]], rounds: int
) -> None:
    """Print each run's rate and the first one's ratio to it. A run's number: the batches it is given (0: all)."""
    for _, run, limit in runs:
        run(batches[: min(limit or 2, 2)])
    rates: dict[str, list[float]] = {name: [] for name, _, _ in runs}
    for _ in range(rounds):
        for name, run, limit in runs:
            given = batches[: limit or len(batches)]
            start = time.perf_counter()
            run(given)
            rates[name].append(sum(X.shape[0] for X, _ in given) / (time.perf_counter() - start))
    first = median(rates[runs[0][0]])
    print(f"\n{title}")
    for name, values in rates.items():
        print(f"  {name:34} {median(values):12,.0f} rows/s   ratio {first / median(values):8.2f}")


def run_text(rows: int, rounds: int) -> None:
    """The sparse bars of the recurrences."""
    batches = text(rows)
    print(f"text: {rows:,} generated rows, {sum(X.nnz for X, _ in batches) / rows:.0f} nonzeros a row, d = 47,236")
    for p in (10, 50):
        others = [("two sparse products", products(p), 0)]
        if p == 10:
            others += [("gensim LSI", lsi(p), 5), ("IncrementalPCA", incremental_pca(p), 1)]
        compare(f"CCIPCA p = {p}", batches, [("CCIPCA", learner(lambda p=p: stream_dr.CCIPCA(p)), 0), *others], rounds)
    for p in (3, 10, 50):
        skm = learner(lambda p=p: stream_dr.IncrementalSKM(p), labels=True)
        compare(
            f"IncrementalSKM p = {p}, 4 classes",
            batches,
            [("IncrementalSKM", skm, 0), (f"two sparse products, {p + 4} columns", products(p + 4), 0)],
            rounds,
        )


def run_dense(rows: int, rounds: int) -> None:
    """The dense bar, float64 and float32."""
    batches = digits(min(rows, 20_000))
    for name, given in (("float64", batches), ("float32", [(X.astype(np.float32), y) for X, y in batches])):
        runs = [
            ("CCIPCA", learner(lambda: stream_dr.CCIPCA(20)), 0),
            ("IncrementalPCA", incremental_pca(20), 5),
            ("PCA (exact moments)", learner(lambda: stream_dr.PCA(20)), 0),
        ]
        compare(f"dense {name}, d = 784, p = 20", given, runs, rounds)


def run_one(rows: int, rounds: int) -> None:
    """One row a call."""
    X = np.random.default_rng(0).normal(size=(3000, 20))
    y = ["abc"[i % 3] for i in range(len(X))]
    singles = [(X[i : i + 1], y[i : i + 1]) for i in range(len(X))]
    runs = [
        ("partial_fit, CCIPCA p = 3", learner(lambda: stream_dr.CCIPCA(3)), 0),
        ("partial_fit, IncrementalSKM p = 3", learner(lambda: stream_dr.IncrementalSKM(3), labels=True), 0),
        ("river learn_one, CCIPCA p = 3", by_river(lambda: stream_dr.CCIPCA(3)), 0),
        ("river learn_one, IncrementalSKM", by_river(lambda: stream_dr.IncrementalSKM(3)), 0),
    ]
    compare("one dense row a call, d = 20", singles, runs, rounds)
    wide = [(batch[i : i + 1], y[i : i + 1]) for batch, y in text(2000) for i in range(1000)]
    runs = [
        ("partial_fit, CCIPCA p = 10", learner(lambda: stream_dr.CCIPCA(10)), 0),
        ("partial_fit, IncrementalSKM p = 3", learner(lambda: stream_dr.IncrementalSKM(3), labels=True), 0),
    ]
    compare("one sparse row a call, d = 47,236", wide, runs, rounds)


def by_river(make: Callable[[], Any]) -> Callable[[Batches], None]:
    """Learns one dict a row through the river adapter; the dicts are made beforehand, outside the clock."""
    names = [f"f{i}" for i in range(20)]
    made: list[dict[str, float]] = []

    def run(batches: Batches) -> None:
        made.extend(dict(zip(names, X[0].tolist(), strict=True)) for X, _ in batches[len(made) :])
        model = stream_dr.to_river(make())
        for x, (_, y) in zip(made, batches, strict=False):
            model.learn_one(x, y[0]) if model.supervised else model.learn_one(x)

    return run


def run_energy(rows: int, rounds: int) -> None:
    """Share of the best rank-10 subspace's energy, centred for CCIPCA, about zero for center=False and gensim."""
    batches = text(rows)
    X = sp.vstack([X for X, _ in batches]).tocsr()
    mean = np.asarray(X.mean(axis=0)).ravel()
    centred = LinearOperator(
        X.shape,
        matvec=lambda v: X @ v - mean @ v,
        rmatvec=lambda u: X.T @ u - mean * u.sum(),
        matmat=lambda V: X @ V - mean @ V,
        rmatmat=lambda U: X.T @ U - np.outer(mean, U.sum(axis=0)),
        dtype=np.float64,
    )
    print(f"\nenergy of the best 10 dimensions captured after {rows:,} generated rows, d = 47,236")
    best = (svds(centred, 10, random_state=0)[1] ** 2).sum()
    for ell in (0.0, 1.0, 2.0, 3.0, 4.0, 8.0):
        estimator = stream_dr.CCIPCA(10, amnesic=ell)
        learn(estimator, batches)
        print(f"  CCIPCA, amnesic = {ell:3.0f}              {captured(centred, estimator.components_.T) / best:.4f}")
    best = (svds(X, 10, random_state=0)[1] ** 2).sum()
    estimator = stream_dr.CCIPCA(10, center=False)
    learn(estimator, batches)
    print(f"  CCIPCA, amnesic =   2, not centred {captured(X, estimator.components_.T) / best:.4f}")
    print(f"  gensim LSI                         {captured(X, fit_lsi(batches, 10).projection.u) / best:.4f}")


def learn(estimator: Any, batches: Batches) -> None:
    """partial_fit of every batch."""
    for X, _ in batches:
        estimator.partial_fit(X)


def captured(operator: Any, vectors: np.ndarray) -> float:
    """‖X Q‖² for an orthonormal basis Q of the vectors' span."""
    return float(((operator @ np.linalg.qr(vectors)[0]) ** 2).sum())


def run_parts(rows: int, rounds: int) -> None:
    """The two touches of a sparse row and the checks by themselves; the rest of a row's time is the algebra."""
    batches = text(min(rows, 20_000))
    for p in (10, 50):
        size = -(-(p + 1) // 8) * 8
        runs = [
            ("CCIPCA", learner(lambda p=p: stream_dr.CCIPCA(p)), 0),
            ("gather alone", touch(write_sparse_row_products, size), 0),
            ("scatter alone", touch(add_row_to_basis, size), 0),
            ("checks of partial_fit alone", check_numeric_finite_rows, 0),
        ]
        compare(f"parts of a row, p = {p}", batches, runs, rounds)


def touch(kernel: Any, size: int) -> Callable[[Batches], None]:
    """One of the row kernels over all rows."""
    import numba

    @numba.njit
    def over(indptr, indices, values, columns, small):  # type: ignore[no-untyped-def]
        for t in range(indptr.shape[0] - 1):
            kernel(indices, values, indptr[t], indptr[t + 1], 1.0, columns, small)

    def run(batches: Batches) -> None:
        columns, small = np.zeros((47_236, size)), np.zeros(size)
        for X, _ in batches:
            over(X.indptr, X.indices, X.data, columns, small)

    return run


def check_numeric_finite_rows(batches: Batches) -> None:
    """What partial_fit looks at before a batch is learned."""
    from stream_dr.batch.matrix import as_rows

    for X, _ in batches:
        as_rows(X)


def run_beside(rows: int, rounds: int) -> None:
    """How much slower sparse rows are learned while the memory is busy with something else."""
    batches = text(rows)
    for p in (10, 50):
        run = learner(lambda p=p: stream_dr.CCIPCA(p))
        compare(f"CCIPCA alone, p = {p}", batches, [("CCIPCA", run, 0)], rounds)
        with subprocess.Popen([sys.executable, "-c", COPIER], stdout=subprocess.PIPE) as copier:
            next(iter(copier.stdout or ()))
            compare(f"CCIPCA beside a copier, p = {p}", batches, [("CCIPCA", run, 0)], rounds)
            copier.kill()


PARTS = {
    "text": run_text,
    "dense": run_dense,
    "one": run_one,
    "energy": run_energy,
    "parts": run_parts,
    "beside": run_beside,
}


def main() -> None:
    """Parse arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=[*PARTS, []], help="which parts (default: all)")
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with threadpool_limits(1):
        for name in arguments.what or PARTS:
            PARTS[name](arguments.rows, arguments.rounds)


if __name__ == "__main__":
    main()
