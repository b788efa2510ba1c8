"""Steps of the demo, built from the commands' functions.

Documents:

- The stream has 24,000 made-up rows of 47,236 words and four topics (datasets/generate.py).
- The rows are in six Arrow shards. Four shards are replayed through four models.
- The other shards are posted to the service as Arrow, the last batch as JSON.
- A table shows accuracy on 2,000 other documents, bytes per row and time per query. A document's
  predicted label is the label of the nearest learned document. The distance is measured between
  projected documents for each model, and between all words for the last line.

Digits:

- The stream is scikit-learn's data set of digits, with 1,797 images of 8 × 8 and ten classes.
- Every fifth row is held out and classified by the nearest class mean.
- The digits have a directory of their own. Their table has the same columns as the documents'
  table.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import httpx
import numpy as np
import scipy.sparse as sp
from sklearn.datasets import load_digits

from stream_dr.aliases import JsonDict
from stream_dr.batch.block import Block, Rows
from stream_dr.batch.targets import class_targets
from stream_dr.client.client import Client
from stream_dr.datasets.generate import WIDTH, generate_rcv1_like
from stream_dr.directory.directory import Directory
from stream_dr.errors import OutputExists
from stream_dr.plotting.directory_figures import write_report
from stream_dr.running.query import transform
from stream_dr.running.replay import ReplayCallback, ReplaySettings, replay
from stream_dr.running.warm_up import warm_up
from stream_dr.shards.dataset import open_dataset
from stream_dr.shards.folder import write_shards
from stream_dr.solve.neighbours import means_by_class, nearest_mean

Models = dict[str, tuple[str, JsonDict]]
"""Registry key and parameters of each model, by its name."""

MODELS: Models = {
    "class_means": ("class_means", {}),
    "lda": ("lda", {"gamma": 1.0}),
    "ccipca": ("ccipca", {"n_components": 10}),
    "iskm": ("iskm", {"n_components": 3}),
}
"""Models that learn the documents. All but ccipca use the topics as labels."""

DIGIT_MODELS: Models = {
    "pca": ("pca", {"n_components": 9}),
    "lda": ("lda", {}),
    "lda_fourier": ("lda", {"feature_map": {"map": "random_fourier", "n_features": 500, "gamma": 0.0005}}),
}
"""Models that learn the digits. Each has nine components. All but pca use the labels."""

ROWS = 24_000
"""Number of documents in the shards, all of which are learned."""

HELD_OUT = 2_000
"""Number of documents to test with."""

BATCH_ROWS = 400
"""Number of rows of a batch."""

SHARD_ROWS = 4_000
"""Number of rows of a shard."""

REPLAYED = 4
"""Number of shards that are replayed."""

UNPROJECTED_LINE_NAME = "every word"
"""Name of the line in the table for rows that are not projected."""

_JSON = "application/json"


class TableLine(NamedTuple):
    """One line of the demo's table.

    Attributes
    ----------
    model : str
        Name of the model.
    components : int
        Number of components of the projection.
    rows : int
        Number of rows learned.
    accuracy : float
        Share of held-out rows whose label is predicted right.
    bytes : float
        Number of bytes of a projected row, in float64.
    seconds : float
        Time of a query in seconds, including the projection over HTTP.
    rate : float or None
        Rows learned per second in this run's replay. None if no rows were learned.
    """

    model: str
    components: int
    rows: int
    accuracy: float
    bytes: float
    seconds: float
    rate: float | None


class TrainTestRows(NamedTuple):
    """Training and held-out rows with their labels.

    X, X_held_out: (rows, features) float64, dense or CSR.
    y, y_held_out: (rows,) label of each row.
    """

    X: Rows
    y: np.ndarray
    X_held_out: Rows
    y_held_out: np.ndarray


def generate_documents() -> TrainTestRows:
    """Return made-up training and test documents, as word weights.

    The held-out documents are generated with another seed.
    """
    return TrainTestRows(
        *_stack_rows_and_labels(generate_rcv1_like(ROWS, "top4", seed=0)),
        *_stack_rows_and_labels(generate_rcv1_like(HELD_OUT, "top4", seed=1)),
    )


def digits() -> TrainTestRows:
    """Return scikit-learn's digits, every fifth row held out.

    The held-out rows are 4, 9, 14 …
    """
    X, y = load_digits(return_X_y=True)
    held_out = np.arange(len(y)) % 5 == 4
    return TrainTestRows(X[~held_out], y[~held_out], X[held_out], y[held_out])


def _stack_rows_and_labels(blocks: Iterator[Block]) -> tuple[Rows, np.ndarray]:
    """Return the CSR rows and the labels of all blocks."""
    parts = list(blocks)
    y = np.concatenate([part.y.targets_by_row() for part in parts])
    return sp.csr_matrix(sp.vstack([part.X for part in parts])), y


def ensure_training_shards(folder: Path, data: TrainTestRows) -> list[Path]:
    """Return the paths of the training rows' Arrow IPC shards.

    The shards are written if the folder has no manifest. Raises OutputExists if the folder's
    shards have another number of rows.
    """
    if not (folder / "manifest.json").exists():
        training = Block(data.X, class_targets(data.y.tolist()))
        write_shards([training], folder, SHARD_ROWS, BATCH_ROWS, n_features=data.X.shape[1])

    dataset = open_dataset(folder)
    rows = sum(shard.rows for shard in dataset.shards)
    if rows != len(data.y):
        raise OutputExists(f"{folder} holds {rows} rows, of an earlier demo: take another --dir, or delete that one.")
    return [Path(shard.path) for shard in dataset.shards]


def measure_replay(
    directory_path: Path,
    shard_paths: list[Path],
    specs_by_name: Models,
    on_progress: ReplayCallback | None = None,
    print_message: Callable[[str], object] = print,
) -> dict[str, float]:
    """Replay shards through models into a directory.

    Returns the number of rows learned per second, by the model's name. The result does not include
    models that learned no row.

    directory_path: path of the directory.
    shard_paths: paths of the shards.
    specs_by_name: registry key and parameters of each model, by its name.
    on_progress: function that receives the progress.
    print_message: function that receives messages about compiling.
    """
    with Directory(directory_path) as directory:
        for name, (key, params) in specs_by_name.items():
            directory.add_model(name, key, params)
        warm_up([model.estimator for model in directory.models.values()], print_message)
        replay(directory, open_dataset(shard_paths), ReplaySettings(test=True), on_progress)
        times = {m.name: m.learning_time for m in directory.models.values()}
        return {name: time.rows_per_second for name, time in times.items() if time.rows}


def post_shard_batches(address: str, shard_paths: list[Path]) -> Iterator[Mapping[str, object]]:
    """Post each batch of shards, and yield the service's responses.

    The last batch is posted as JSON, the others as Arrow.
    """
    # With fixed idempotency keys, the service ignores batches that an earlier run has posted.
    blocks = [block for _, block in open_dataset(shard_paths).events()]
    with Client(address) as client:
        for number, block in enumerate(blocks[:-1]):
            yield client.partial_fit(block.X, block.y, key=f"demo-{number}")

    last = blocks[-1]
    body = {"rows": [_sparse_row_as_json(row) for row in last.X], "labels": last.y.targets_by_row()}
    headers = {"Idempotency-Key": "demo-json"}
    response = httpx.post(f"{address}/partial_fit?wait=applied", json=body, headers=headers, timeout=60)
    response.raise_for_status()
    yield response.json()


def score_served_models(address: str, data: TrainTestRows, rows_per_second: dict[str, float]) -> list[TableLine]:
    """Return the lines of the documents' table.

    There is a line for each model, and a last line for all words.

    The service projects the rows. A row's predicted label is the label of the nearest learned row.

    address: URL of the service.
    rows_per_second: number of rows learned per second, by the model's name.
    """
    lines = []
    with Client(address) as client:
        for name in MODELS:
            rows = client.model(name)["rows"]
            z = _project_in_requests(client, name, data.X)

            start = time.perf_counter()
            z_held_out = _project_in_requests(client, name, data.X_held_out)
            projecting = time.perf_counter() - start

            accuracy, searching = score_nearest_neighbour(z, data.y, z_held_out, data.y_held_out)
            seconds = (projecting + searching) / HELD_OUT
            rate = rows_per_second.get(name)
            lines.append(TableLine(name, z.shape[1], rows, accuracy, z.nbytes / len(z), seconds, rate))

    # The last line is for rows that are not projected.
    # The size of a row is the row's share of the CSR arrays.
    accuracy, searching = score_nearest_neighbour(*data)
    rows = len(data.y)
    row_bytes = (data.X.data.nbytes + data.X.indices.nbytes + data.X.indptr.nbytes) / rows
    unprojected = TableLine(UNPROJECTED_LINE_NAME, WIDTH, rows, accuracy, row_bytes, searching / HELD_OUT, None)
    return [*lines, unprojected]


def learn_digits(directory_path: Path) -> list[TableLine]:
    """Learn the digits into a directory and return their table.

    There is a line for each model, and a last line for all pixels.

    directory_path: path of the directory.
    """
    data = digits()
    lines = []
    shards = ensure_training_shards(directory_path / "shards", data)
    rates = measure_replay(directory_path, shards, DIGIT_MODELS, print_message=lambda message: None)
    with Directory(directory_path, writable=False) as directory:
        for name, model in directory.models.items():
            z = transform(directory.releases.served(model), Block(data.X)).z

            # The time of a query is the time to project and to classify a held-out row.
            start = time.perf_counter()
            z_held_out = transform(directory.releases.served(model), Block(data.X_held_out)).z
            projecting = time.perf_counter() - start

            accuracy, classifying = score_nearest_class_mean(z, data.y, z_held_out, data.y_held_out)
            seconds = (projecting + classifying) / len(z_held_out)
            row_bytes = z.nbytes / len(z)
            label = f"digits by {name}"
            lines.append(TableLine(label, z.shape[1], model.rows, accuracy, row_bytes, seconds, rates.get(name)))

    accuracy, classifying = score_nearest_class_mean(*data)
    seconds = classifying / len(data.y_held_out)
    rows = len(data.y)
    return [*lines, TableLine("digits as they are", 64, rows, accuracy, data.X.nbytes / rows, seconds, None)]


def report(address: str, directory_path: Path) -> Path:
    """Write the served directory's report, and return its path.

    Snapshots are written first, so that the report covers all rows learned.

    address: URL of the service.
    directory_path: path of the directory.
    """
    with Client(address) as client:
        for name in MODELS:
            client.snapshot(name, wait=True)
    with Directory(directory_path, writable=False) as directory:
        write_report(directory, directory_path / "report.html")
    return directory_path / "report.html"


def score_nearest_neighbour(X: Rows, y: np.ndarray, X_test: Rows, y_test: np.ndarray) -> tuple[float, float]:
    """Return a nearest-neighbour classifier's accuracy and seconds."""
    from sklearn.neighbors import KNeighborsClassifier

    classifier = KNeighborsClassifier(1).fit(X, y)
    start = time.perf_counter()
    return float(classifier.score(X_test, y_test)), time.perf_counter() - start


def score_nearest_class_mean(X: Rows, y: np.ndarray, X_test: Rows, y_test: np.ndarray) -> tuple[float, float]:
    """Return a nearest-mean classifier's accuracy and seconds."""
    means = means_by_class(X, y, y.max() + 1)
    start = time.perf_counter()
    return float((nearest_mean(X_test, means) == y_test).mean()), time.perf_counter() - start


def project_row_with_lda(address: str, row: Rows) -> JsonDict:
    """Project a row with the service's model LDA, and return the response.

    row: (1, features), CSR.
    """
    response = httpx.get(f"{address}/transform", params={"model": "lda"} | _row_as_query(row), timeout=60)
    response.raise_for_status()
    return dict(response.json())


def example_curl_commands(address: str, sparse_row: Rows) -> list[str]:
    """Return three shell commands that send requests to the service."""
    query = "&".join(f"{name}={numbers}" for name, numbers in _row_as_query(sparse_row).items())
    body = json.dumps({"rows": [_sparse_row_as_json(sparse_row)]})
    return [
        f"curl '{address}/models'",
        f"curl '{address}/transform?model=lda&{query}'",
        f"curl -H 'Content-Type: {_JSON}' -d '{body}' '{address}/transform?model=ccipca'",
    ]


def _project_in_requests(client: Client, model_name: str, X: Rows) -> np.ndarray:
    """Project rows by a served model, 4,000 rows in each request."""
    parts = [X[start : start + 4_000] for start in range(0, X.shape[0], 4_000)]
    return np.concatenate([client.transform(part, model=model_name) for part in parts])


def _sparse_row_as_json(row: Rows) -> dict[str, list[float]]:
    """Return a sparse row (1, features) as for a JSON body."""
    return {"indices": row.indices.tolist(), "values": row.data.tolist()}


def _row_as_query(row: Rows) -> dict[str, str]:
    """Return a sparse row (1, features) as URL query parameters."""
    return {name: ",".join(f"{number:g}" for number in numbers) for name, numbers in _sparse_row_as_json(row).items()}
