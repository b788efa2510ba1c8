"""Methods of the comparison: each learns the rows of a task, and returns what it makes of rows.

Methods that learn batch by batch get batches of 500 rows. The others get all rows at once.
"""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.cross_decomposition import PLSRegression
from sklearn.decomposition import PCA, IncrementalPCA, TruncatedSVD
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.random_projection import GaussianRandomProjection
from sklearn.svm import LinearSVC

import stream_dr
from benchmarks.peers.tasks import Task

BATCH = 500
"""Rows of a batch."""

Apply = Callable[[Any], Any]
"""Function from rows to vectors, or to labels."""


class Method(NamedTuple):
    """Method of the comparison.

    Attributes
    ----------
    learn : function
        Function that learns a task, with a number of numbers a row.
    makes : str
        "vectors", "codes" (vectors of all features in fewer bytes) or "labels".
    refuses : tuple of str
        Tasks that it cannot learn: "sparse", "label sets".
    by_dimension : bool
        True if its figures are also measured by dimension. The first numbers of a vector
        must then be a shorter vector.
    most : function
        Function that returns the largest number of numbers a row.
    package : str or None
        Package that it needs in addition.
    """

    learn: Callable[[Task, int], Apply]
    makes: str = "vectors"
    refuses: tuple[str, ...] = ()
    by_dimension: bool = False
    most: Callable[[Task], int] = lambda task: min(task.X.shape)
    package: str | None = None


def reason_to_skip(method: Method, task: Task) -> str | None:
    """Return the reason why a method is not measured, or None."""
    if method.package and find_spec(method.package) is None:
        return f"{method.package} is not installed"
    if task.is_sparse and "sparse" in method.refuses:
        size = task.X.shape[0] * task.X.shape[1] * 8 / 1e9
        return f"takes dense rows only ({size:.1f} GB here)"
    if task.is_sparse and "wide" in method.refuses:
        return "needs more than one pass past 4,096 sparse features"
    if task.has_label_sets and "label sets" in method.refuses:
        return "takes one label a row"
    return None


def batches(task: Task) -> Iterator[tuple[Any, np.ndarray]]:
    """Yield the rows to learn and their labels, batch by batch."""
    for start in range(0, len(task.y), BATCH):
        yield task.X[start : start + BATCH], task.y[start : start + BATCH]


def one_hot(task: Task) -> Any:
    """Return the labels (rows, labels) as 0 and 1."""
    if task.has_label_sets:
        return task.y
    return (task.y[:, None] == np.unique(task.y)).astype(float)


def ours(make: Callable[[Task, int], Any], uses_labels: bool = True) -> Callable[[Task, int], Apply]:
    """Return a function that learns one of our estimators, batch by batch."""

    def learn(task: Task, numbers: int) -> Apply:
        model = make(task, numbers)
        for X, y in batches(task):
            if uses_labels:
                model.partial_fit(X, y)
            else:
                model.partial_fit(X)
        return model.transform

    return learn


def lda(task: Task, numbers: int) -> Any:
    """Return LDA with a ridge: sparse rows have no shrinkage."""
    if task.is_sparse:
        return stream_dr.LDA(n_components=numbers, gamma=1.0)
    return stream_dr.LDA(n_components=numbers, shrinkage=0.1)


def at_once(make: Callable[[int], Any]) -> Callable[[Task, int], Apply]:
    """Return a function that learns a scikit-learn model from all rows."""

    def learn(task: Task, numbers: int) -> Apply:
        return make(numbers).fit(task.X, task.y).transform

    return learn


def sample_pca(task: Task, numbers: int) -> Apply:
    """Learn PCA from a tenth of the rows."""
    return PCA(numbers, random_state=0).fit(task.X[::10]).transform


def dense(rows: Any) -> Any:
    """Return rows as an array."""
    return rows.toarray() if sp.issparse(rows) else rows


def incremental_pca(task: Task, numbers: int) -> Apply:
    """Learn scikit-learn's IncrementalPCA, from dense batches."""
    model = IncrementalPCA(numbers)
    for X, _ in batches(task):
        if X.shape[0] >= numbers:
            model.partial_fit(dense(X))

    def apply(rows: Any) -> np.ndarray:
        parts = range(0, rows.shape[0], BATCH)
        return np.vstack([model.transform(dense(rows[start : start + BATCH])) for start in parts])

    return apply


def pls(task: Task, numbers: int) -> Apply:
    """Learn scikit-learn's PLSRegression of labels as 0 and 1."""
    return PLSRegression(numbers, scale=False).fit(task.X, one_hot(task)).transform


def lsi(task: Task, numbers: int) -> Apply:
    """Learn gensim's one-pass LSI, a batch a chunk."""
    from gensim.models import LsiModel

    model = LsiModel(id2word={i: str(i) for i in range(task.X.shape[1])}, num_topics=numbers)
    for X, _ in batches(task):
        model.add_documents(sp.csc_matrix(X.T))
    basis = model.projection.u
    return lambda rows: np.asarray(rows @ basis)


def sgd(task: Task, _: int) -> Apply:
    """Learn a linear classifier by one pass of SGD."""
    model: Any = SGDClassifier(random_state=0)
    classes: Any = np.unique(task.y)
    if task.has_label_sets:
        model = MultiOutputClassifier(model)
        classes = [np.array([0.0, 1.0])] * task.classes
    for X, y in batches(task):
        model.partial_fit(X, y, classes=classes)
    return model.predict


def linear_svc(task: Task, _: int) -> Apply:
    """Learn a linear support vector classifier."""
    model: Any = LinearSVC(random_state=0)
    if task.has_label_sets:
        model = OneVsRestClassifier(model)
    return model.fit(task.X, task.y).predict


def probabilities(task: Task, _: int) -> Apply:
    """Learn logistic regression, whose probabilities are the vectors."""
    model: Any = LogisticRegression(C=10.0, max_iter=300)
    if task.has_label_sets:
        model = OneVsRestClassifier(model)
    return model.fit(task.X, task.y).predict_proba


def int8(task: Task, _: int) -> Apply:
    """Learn faiss's scalar quantiser of 8 bits a feature."""
    import faiss

    codec = faiss.IndexScalarQuantizer(task.X.shape[1], faiss.ScalarQuantizer.QT_8bit)
    codec.train(np.ascontiguousarray(task.X, dtype=np.float32))
    return lambda rows: _decoded(codec, rows)


def pq_bytes(task: Task) -> int:
    """Return the bytes a row of product quantisation."""
    return min(64, task.X.shape[1] // 2)


def pq(task: Task, _: int) -> Apply:
    """Learn faiss's product quantisation. Columns of 0 fill the last part."""
    import faiss

    size = pq_bytes(task)
    columns = -(-task.X.shape[1] // size) * size
    codec = faiss.IndexPQ(columns, size, 8)
    codec.pq.cp.seed = 0

    def filled(rows: np.ndarray) -> np.ndarray:
        return np.pad(rows, ((0, 0), (0, columns - rows.shape[1])))

    codec.train(np.ascontiguousarray(filled(task.X), dtype=np.float32))
    return lambda rows: _decoded(codec, filled(rows))


def _decoded(codec: Any, rows: np.ndarray) -> Any:
    """Return rows as they are after they were encoded."""
    return codec.sa_decode(codec.sa_encode(np.ascontiguousarray(rows, dtype=np.float32)))


def raw(task: Task, _: int) -> Apply:
    """Learn nothing: the vectors are the rows."""
    return lambda rows: rows


def most_axes(task: Task) -> int:
    """Return classes − 1, or the number of features if that is less."""
    return min(task.classes - 1, task.X.shape[1])


ONE_LABEL = ("label sets",)
SHRUNK = {"solver": "eigen", "shrinkage": 0.1}

METHODS: dict[str, Method] = {
    "all features": Method(raw, "codes"),
    "LDA": Method(ours(lda), refuses=ONE_LABEL, by_dimension=True, most=most_axes),
    "PLSDA": Method(ours(lambda _, p: stream_dr.PLSDA(n_components=p)), by_dimension=True),
    "PCA": Method(ours(lambda _, p: stream_dr.PCA(n_components=p), False), refuses=("wide",), by_dimension=True),
    "CCIPCA": Method(ours(lambda _, p: stream_dr.CCIPCA(n_components=p), False), by_dimension=True),
    "scikit-learn LDA": Method(
        at_once(lambda p: LinearDiscriminantAnalysis(n_components=p, **SHRUNK)),
        refuses=("sparse", "label sets"),
        most=most_axes,
    ),
    "scikit-learn PLSRegression": Method(pls, refuses=("sparse",)),
    "scikit-learn PCA": Method(at_once(lambda p: PCA(p, random_state=0))),
    "scikit-learn PCA, 10 % sample": Method(sample_pca, most=lambda t: min(t.X.shape[0] // 10, t.X.shape[1])),
    "scikit-learn IncrementalPCA": Method(incremental_pca),
    "scikit-learn TruncatedSVD": Method(at_once(lambda p: TruncatedSVD(p, random_state=0)), by_dimension=True),
    "gensim LSI": Method(lsi, package="gensim"),
    "random projection": Method(at_once(lambda p: GaussianRandomProjection(p, random_state=0)), by_dimension=True),
    "SGDClassifier, all features": Method(sgd, "labels"),
    "LinearSVC, all features": Method(linear_svc, "labels"),
    "logistic probabilities": Method(probabilities, most=lambda task: task.classes),
    "int8 (faiss)": Method(int8, "codes", ("sparse",), package="faiss"),
    "PQ (faiss)": Method(pq, "codes", ("sparse",), package="faiss"),
}
"""Methods by name. Names without a library are ours, or no library's."""

QUICK = ("all features", "LDA", "PCA", "scikit-learn LDA", "SGDClassifier, all features")
"""Methods of the quick form."""
