"""Measure one method on one task, in this process alone: `python -m benchmarks.peers.measure FOLDER METHOD`.

The last line that is printed is the measurement, as JSON. Peak memory is what the process needs in
addition to the rows, while it learns. It is measured on Linux only.
"""

import argparse
import gc
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import normalize

from benchmarks.peers import tasks
from benchmarks.peers.methods import METHODS, Method, pq_bytes
from benchmarks.peers.tasks import Task

DIMENSIONS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Numbers a row of the figures by dimension."""


def memory(field: str) -> float:
    """Return a field of the process's status in MB, NaN if the system has none."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return float("nan")
    (line,) = [line for line in status.splitlines() if line.startswith(field + ":")]
    return int(line.split()[1]) / 1024


def forget_peak() -> None:
    """Let the peak of memory begin at what is in use."""
    gc.collect()
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def numbers_of(method: Method, task: Task) -> int:
    """Return the numbers a row that a method makes."""
    return min(task.numbers, method.most(task))


def speed(method: Method, task: Task) -> tuple[dict[str, Any], Any]:
    """Return rows a second and peak memory in MB of learning, and the learned function."""
    few = Task(task.X[:400], task.y[:400], task.asking, task.truth, task.raw)
    if task.has_label_sets or len(np.unique(few.y)) == task.classes:
        # Compile and load first, so that the time is without it.
        method.learn(few, numbers_of(method, few))(task.asking[:1])

    forget_peak()
    before = memory("VmRSS")
    began = time.perf_counter()
    apply = method.learn(task, numbers_of(method, task))
    apply(task.asking[:1])
    seconds = time.perf_counter() - began
    return {"rows": task.X.shape[0] / seconds, "memory": memory("VmHWM") - before}, apply


def share_right(predicted: np.ndarray, truth: np.ndarray) -> float:
    """Return the share of labels that are right."""
    return float(np.mean(predicted == truth))


def vote(y: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return the labels that most of the neighbours have."""
    if y.ndim == 2:
        return (y[places].mean(axis=1) > 0.5).astype(float)
    labels, codes = np.unique(y, return_inverse=True)
    votes = np.apply_along_axis(np.bincount, 1, codes[places], minlength=len(labels))
    return labels[votes.argmax(axis=1)]


def same_label(y: np.ndarray, truth: np.ndarray, places: np.ndarray) -> float:
    """Return the share of neighbours with the label, or of common labels among both rows' labels."""
    if y.ndim == 1:
        return float((y[places] == truth[:, None]).mean())
    common = np.minimum(y[places], truth[:, None, :]).sum(axis=2)
    either = np.maximum(y[places], truth[:, None, :]).sum(axis=2)
    return float(np.mean(common / np.maximum(either, 1)))


def recall(places: np.ndarray, raw: np.ndarray) -> float:
    """Return the share of raw neighbours that are among the neighbours."""
    return float((places[:, :, None] == raw[:, None, :]).any(axis=1).mean())


def linear(task: Task, Z: Any, asked: Any) -> float:
    """Return the accuracy of logistic regression on vectors of unit mean square.

    Sparse rows have unit length. The ridge is a tenth for them, as if C were 10.
    """
    if sp.issparse(Z):
        factor = np.sqrt(10.0)  # a row of unit length and many features needs a weaker ridge
    else:
        factor = 1.0 / np.sqrt(np.mean(Z**2))
    model: Any = LogisticRegression(max_iter=200)
    if task.has_label_sets:
        model = OneVsRestClassifier(model)
    return share_right(model.fit(Z * factor, task.y).predict(asked * factor), task.truth)


def neighbour_figures(task: Task, Z: Any, asked: Any) -> dict[str, float]:
    """Return 5-NN accuracy, same-label@10 and recall of vectors. Documents go by the cosine."""
    if task.is_sparse:
        Z = normalize(Z)
        asked = normalize(asked)
    places = tasks.nearest(Z, asked)
    return {
        "knn": share_right(vote(task.y, places[:, :5]), task.truth),
        "same": same_label(task.y, task.truth, places),
        "recall": recall(places, task.raw),
    }


def bytes_of(name: str, task: Task, width: int) -> int:
    """Return the bytes of a stored row: four a number, as float32, if it is not encoded."""
    if name.startswith("int8"):
        return width
    if name.startswith("PQ"):
        return pq_bytes(task)
    if name == "all features" and task.is_sparse:
        return round(8 * task.X.nnz / task.X.shape[0])
    return 4 * width


def quality(name: str, task: Task, apply: Any) -> dict[str, Any]:
    """Return the figures of what a method has learned, except of speed."""
    if METHODS[name].makes == "labels":
        return {"linear": share_right(apply(task.asking), task.truth)}
    Z = apply(task.X)
    asked = apply(task.asking)
    stored = {"numbers": task.X.shape[1] if METHODS[name].makes == "codes" else Z.shape[1]}
    stored["bytes"] = bytes_of(name, task, stored["numbers"])
    return stored | {"linear": linear(task, Z, asked)} | neighbour_figures(task, Z, asked)


def by_dimension(method: Method, task: Task) -> dict[int, dict[str, float]]:
    """Return the figures of neighbours for each number of numbers a row."""
    most = min(method.most(task), DIMENSIONS[-1])
    chosen = [d for d in DIMENSIONS if d < most] + [most]
    apply = method.learn(task, most)
    Z = apply(task.X)
    asked = apply(task.asking)
    return {d: neighbour_figures(task, Z[:, :d], asked[:, :d]) for d in chosen if d <= Z.shape[1]}


def main(arguments: list[str] | None = None) -> None:
    """Print the measurement of a method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="folder of the task")
    parser.add_argument("method", choices=METHODS)
    parser.add_argument("--quality", action="store_true", help="measure more than speed and memory")
    given = parser.parse_args(arguments)

    warnings.simplefilter("ignore")
    task = tasks.load_task(given.folder)
    method = METHODS[given.method]
    figures, apply = speed(method, task)
    if given.quality:
        figures |= quality(given.method, task, apply)
        if method.by_dimension:
            figures["by_dimension"] = by_dimension(method, task)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
