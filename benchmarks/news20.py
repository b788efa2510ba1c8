"""20 Newsgroups (tf-idf): one-pass LDA, then refine, beside the full space and LSI, in one run.

    STREAM_DR_DATA=… python benchmarks/news20.py
    STREAM_DR_DATA=… python benchmarks/news20.py --rcv1     # the RCV1 fragment: CCAT or not, 1,000 + 500 rows × 47,236

The sets are converted to shards by the same functions as `stream-dr convert`, learned in one pass over the shards, and
refined by passes over them. Printed: accuracy on the held-out rows of nearest class mean and of logistic regression, both
fitted on the training rows' projections; residual and angle of each pass. Logistic regression (C = 1) runs on coordinates
divided by their root mean square over the training rows; in the full space on the unit-norm rows, there with C = 10, which
does better on them. LSI is scikit-learn's TruncatedSVD.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.papers.sets import tfidf
from stream_dr.batch.block import Block
from stream_dr.batch.targets import class_targets
from stream_dr.datasets.convert import convert
from stream_dr.datasets.sources import Options
from stream_dr.estimators import make
from stream_dr.estimators.fitting.refining import refine_steps
from stream_dr.shards.dataset import Dataset, open_dataset
from stream_dr.shards.folder import write_shards


def rows_of(dataset: Dataset) -> tuple[sp.csr_matrix, np.ndarray]:
    """All rows and labels of a data set, for the classifiers only."""
    blocks = [block for _, block in dataset.events()]
    return sp.vstack([b.X for b in blocks], format="csr"), np.array(
        [label for b in blocks for label in b.y.targets_by_row()]
    )


def logistic(Z: Any, y: np.ndarray, T: Any, truth: np.ndarray, C: float = 1.0) -> float:
    """Held-out accuracy of multinomial logistic regression with ridge 1/C."""
    from sklearn.linear_model import LogisticRegression

    return float(LogisticRegression(C=C, max_iter=1_000).fit(Z, y).score(T, truth))


def nearest_mean(Z: Any, y: np.ndarray, T: Any, truth: np.ndarray) -> float:
    """Held-out accuracy of the nearest class mean."""
    classes, codes = np.unique(y, return_inverse=True)
    one = np.eye(len(classes))[codes]
    means = np.asarray(Z.T @ one).T / one.sum(0)[:, None]
    nearest = np.argmin((means**2).sum(1) - 2.0 * np.asarray(T @ means.T), axis=1)
    return float(np.mean(classes[nearest] == truth))


def line(name: str, dims: int, mean: float, linear: float, seconds: float, more: str = "") -> None:
    """One printed row."""
    print(f"{name:<28} {dims:>6} {mean:>12.3f} {linear:>10.3f} {seconds:>9.2f}  {more}", flush=True)


def compare(
    train: Dataset, test: Dataset, gamma: float, passes: int, lsi: int, check: tuple[float, float] | None
) -> None:
    """Print the table for one data set; with `check`, raise SystemExit unless one pass and `passes` passes reach it."""
    X, y = rows_of(train)
    T, truth = rows_of(test)
    print(
        f"{X.shape[0]} + {T.shape[0]} rows × {X.shape[1]}, {X.nnz / X.shape[0]:.0f} nonzeros a row, {len(set(y))} classes"
    )
    print(f"{'':<28} {'dims':>6} {'nearest mean':>12} {'logistic':>10} {'seconds':>9}")
    began = time.perf_counter()
    line(
        "full space",
        X.shape[1],
        nearest_mean(X, y, T, truth),
        logistic(X, y, T, truth, C=10.0),
        time.perf_counter() - began,
    )
    _lsi(X, y, T, truth, lsi)
    began = time.perf_counter()
    lda = make("lda", {"gamma": gamma})
    learner = lda.accumulator()
    for _, block in train.events():
        learner.add(block)
    state = learner.freeze()
    projection = lda.solve(state)
    reached = [_show("LDA, one pass", projection, X, y, T, truth, time.perf_counter() - began)]
    for step in refine_steps(lda, state, train, tol=1e-6, max_passes=passes):
        r = step.report
        told = f"residual {r.residual:.1e}, angle {np.degrees(r.angle):.3f}°"
        if r.number in (1, 2, 5, 10, 20, passes) or r.converged:
            reached.append(_show(f"LDA, {r.number} passes of refine", step.projection, X, y, T, truth, r.seconds, told))
        if r.number == 5:
            after = reached[-1]
    if check is not None and (reached[0] < check[0] or after < check[1]):
        raise SystemExit(f"one pass {reached[0]:.4f} (needed {check[0]}), five passes {after:.4f} (needed {check[1]})")


def _show(name: str, projection: Any, X: Any, y: Any, T: Any, truth: Any, seconds: float, more: str = "") -> float:
    Z, held = projection.apply(X), projection.apply(T)
    scale = np.sqrt((Z**2).mean())
    linear = logistic(Z / scale, y, held / scale, truth)
    line(name, projection.n_components, nearest_mean(Z, y, held, truth), linear, seconds, more)
    return linear


def _lsi(X: Any, y: np.ndarray, T: Any, truth: np.ndarray, dims: int) -> None:
    from sklearn.decomposition import TruncatedSVD

    began = time.perf_counter()
    lsi = TruncatedSVD(min(dims, X.shape[0] - 1), random_state=0).fit(X)
    seconds = time.perf_counter() - began
    Z, held = lsi.transform(X), lsi.transform(T)
    scale = np.sqrt((Z**2).mean())
    line("LSI", Z.shape[1], nearest_mean(Z, y, held, truth), logistic(Z / scale, y, held / scale, truth), seconds)


def tfidf_shards(folder: str) -> tuple[Dataset, Dataset]:
    """Write the training and the test documents as shards of unit-norm tf-idf rows."""
    counts = {}
    for part, subset in (("train", "trainIdx"), ("test", "testIdx")):
        convert([data("news20") / "20Newsgroups.mat"], "mat", f"{folder}/{part}-counts", Options(subset=subset))
        counts[part] = rows_of(open_dataset(f"{folder}/{part}-counts"))
    weighted = tfidf(counts["train"][0], counts["test"][0])
    for (part, (_, y)), X in zip(counts.items(), weighted, strict=True):
        write_shards([Block(X, class_targets(y.tolist()))], f"{folder}/{part}", n_features=X.shape[1])
    return open_dataset(f"{folder}/train"), open_dataset(f"{folder}/test")


def rcv1_shards(folder: str) -> tuple[Dataset, Dataset]:
    """Write the training and the test rows of the RCV1 fragment as shards."""
    options = Options(n_features=47_236)
    for part, name in (("train", "rcv1_small.dat"), ("test", "rcv1_small_test.data")):
        convert([data("rcv1_fragment") / name], "vw", f"{folder}/{part}", options)
    return open_dataset(f"{folder}/train"), open_dataset(f"{folder}/test")


def data(folder: str) -> Path:
    """A folder under STREAM_DR_DATA."""
    if "STREAM_DR_DATA" not in os.environ:
        raise SystemExit("set STREAM_DR_DATA to the folder that holds the data sets.")
    return Path(os.environ["STREAM_DR_DATA"]) / folder


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gamma", type=float, default=1.0)
    parser.add_argument("--passes", type=int, default=21)
    parser.add_argument("--rcv1", action="store_true", help="the RCV1 fragment instead")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sets = (rcv1_shards if given.rcv1 else tfidf_shards)(folder)
        compare(*sets, given.gamma, given.passes, lsi=100, check=None if given.rcv1 else (0.84, 0.85))
