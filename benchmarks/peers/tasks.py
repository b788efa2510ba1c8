"""Data sets of the comparison, each with its source, split into rows to learn and rows that ask."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.neighbors import NearestNeighbors

from benchmarks.papers import sets

NEAREST = 10
"""Number of raw neighbours, and of neighbours among the vectors."""

MOST_ASKING = 2_000
"""Largest number of rows that ask."""

LEAST_NUMBERS = 9
"""Numbers a row of methods that can have more than classes − 1."""

MISSING = (
    "all of RCV1 (the fragment has 1,500 of its 804,414 documents)",
    "MNIST's 60,000 training images",
    "6,237 of isolet's 7,797 rows",
)
"""Data that is not at hand, and so not measured."""


class Task(NamedTuple):
    """Rows to learn and rows that ask, with their labels.

    Attributes
    ----------
    X, asking : array or CSR matrix of shape (rows, features)
        Rows.
    y, truth : array of shape (rows,), or (rows, labels) of 0 and 1
        Labels.
    raw : array of shape (asking rows, NEAREST)
        Indices of the learned rows that are nearest in all features.
    """

    X: Any
    y: np.ndarray
    asking: Any
    truth: np.ndarray
    raw: np.ndarray

    @property
    def is_sparse(self) -> bool:
        """True if the rows are sparse."""
        return sp.issparse(self.X)

    @property
    def has_label_sets(self) -> bool:
        """True if a row may have several labels."""
        return bool(self.y.ndim == 2)

    @property
    def classes(self) -> int:
        """Number of labels."""
        return self.y.shape[1] if self.has_label_sets else len(np.unique(self.y))

    @property
    def numbers(self) -> int:
        """Numbers a row of methods that may have any number of them."""
        return max(self.classes - 1, LEAST_NUMBERS)


class Source(NamedTuple):
    """Data set with its origin.

    Attributes
    ----------
    origin : str
        Source of the data.
    licence : str
        Licence, as far as the files or the publisher state one.
    read : function
        Function that returns the rows to learn with their labels, and the rows that ask with theirs.
    """

    origin: str
    licence: str
    read: Callable[[], tuple[sets.Set, sets.Set]]


def _split(name: str, rows: int, scale: float = 1.0) -> Callable[[], tuple[sets.Set, sets.Set]]:
    """Return a function that splits a data set at random, and divides it by `scale`."""

    def read() -> tuple[sets.Set, sets.Set]:
        X, y = sets.load(name)
        order = np.random.default_rng(0).permutation(len(y))
        learned, asking = np.split(order, [rows])
        return (X[learned] / scale, y[learned]), (X[asking] / scale, y[asking])

    return read


def _rcv1_fragment() -> tuple[sets.Set, sets.Set]:
    """Return the fragment's own training and test rows."""
    found = sets.load_text(sets.RCV1_FRAGMENT)
    if found is None:
        raise FileNotFoundError("RCV1 fragment: set STREAM_DR_DATA to the folder that has rcv1_fragment/")
    X, y = found
    return (X[:1_000], y[:1_000]), (X[1_000:], y[1_000:])


NO_LICENCE = "none in the files"

SOURCES = {
    "digits": Source(
        "UCI, optical recognition of handwritten digits, test part; ships with scikit-learn",
        "CC BY 4.0",
        _split("digits", 1_400, 16.0),
    ),
    "RCV1 fragment": Source("1,500 documents of RCV1-v2 (Lewis et al., 2004), CCAT or not", NO_LICENCE, _rcv1_fragment),
    "isolet rows": Source("UCI, isolet, 1,560 of its 7,797 rows", "CC BY 4.0", _split("isolet part", 1_200)),
    "USPS": Source("handwritten digits of US envelopes (Hull, 1994)", NO_LICENCE, _split("USPS", 7_298)),
    "MNIST test set": Source("LeCun et al., 1998, test images", NO_LICENCE, _split("MNIST test set", 8_000)),
    "yeast": Source("MULAN; Elisseeff and Weston, 2001", NO_LICENCE, _split("yeast", 1_600)),
    "scene": Source("MULAN; Boutell et al., 2004", NO_LICENCE, _split("scene", 1_600)),
    "news20": Source("20 Newsgroups by date, counts as a MATLAB file; here tf-idf", NO_LICENCE, sets.news20_parts),
}
"""Data sets by name. The one that takes longest is the last."""


def nearest(stored: Any, asking: Any, count: int = NEAREST) -> np.ndarray:
    """Return the indices (asking rows, count) of the nearest stored rows."""
    index = NearestNeighbors(n_neighbors=count, algorithm="brute").fit(stored)
    return index.kneighbors(asking, return_distance=False)


def read_task(name: str) -> Task:
    """Return a data set, or raise FileNotFoundError if it is not here."""
    (X, y), (asking, truth) = SOURCES[name].read()
    rng = np.random.default_rng(1)
    # Rows that are sorted by their label would mislead the methods that learn batch by batch.
    order = rng.permutation(len(y))
    chosen = rng.permutation(len(truth))[:MOST_ASKING]
    X = X[order]
    asking = asking[chosen]
    return Task(X, y[order], asking, truth[chosen], nearest(X, asking))


def save_task(task: Task, folder: Path) -> None:
    """Write a task, for the processes that measure."""
    arrays = {"y": task.y, "truth": task.truth, "raw": task.raw}
    if task.is_sparse:
        sp.save_npz(folder / "X.npz", task.X)
        sp.save_npz(folder / "asking.npz", task.asking)
    else:
        arrays |= {"X": task.X, "asking": task.asking}
    np.savez(folder / "task.npz", **arrays)


def load_task(folder: Path) -> Task:
    """Return the task that `save_task` wrote."""
    with np.load(folder / "task.npz") as arrays:
        parts = dict(arrays)
    if "X" not in parts:
        parts["X"] = sp.load_npz(folder / "X.npz").tocsr()
        parts["asking"] = sp.load_npz(folder / "asking.npz").tocsr()
    return Task(**parts)
