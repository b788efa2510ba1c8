"""Demo: the whole path, through the same functions as `replay`, `serve` and any HTTP client, on two streams.

Documents: 24,000 made-up rows of 47,236 words, of four topics (datasets/generate.py). Of six Arrow shards four are replayed
through four models; the others are posted to the service as Arrow, the last batch as JSON, with fixed idempotency keys, so
that a second run on the same directory learns nothing twice. Then one table: accuracy of the nearest row's label on 2,000
other documents, bytes a row and time of a query, by what each model projects to and by all words.

Digits: scikit-learn's (1,797 images of 8 × 8, ten classes), every fifth row held out, classified by the nearest class mean.
They are replayed into a directory of their own, and have a table of the same columns.

Why this way: what a newcomer sees work is what the product is made of; there is no second path to keep alive.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
import scipy.sparse as sp
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

from stream_dr.client.client import Client
from stream_dr.datasets.generate import rcv1_like
from stream_dr.datasets.language import WIDTH
from stream_dr.directory.directory import Directory
from stream_dr.errors import OutputExists
from stream_dr.plotting.report import write_report
from stream_dr.rows.block import Block, Rows
from stream_dr.running.query import transform
from stream_dr.running.replay import ReplaySettings, replay
from stream_dr.running.warm_up import warm_up
from stream_dr.shards import writer
from stream_dr.shards.dataset import open_dataset
from stream_dr.solve.nearest_mean import means_by_class, nearest
from stream_dr.targets.targets import class_targets

Models = dict[str, tuple[str, dict[str, Any]]]
"""Name → registry key and parameters."""

MODELS: Models = {
    "class_means": ("class_means", {}),
    "lda": ("lda", {"gamma": 1.0}),
    "ccipca": ("ccipca", {"n_components": 10}),
    "iskm": ("iskm", {"n_components": 3}),
}
"""Of the documents; ccipca alone does not use their topics."""

OF_DIGITS: Models = {
    "pca": ("pca", {"n_components": 9}),
    "lda": ("lda", {}),
    "lda_fourier": ("lda", {"feature_map": {"map": "random_fourier", "n_features": 500, "gamma": 0.0005}}),
}
"""Of the digits. All project to nine numbers; pca alone does not use the labels."""

ROWS, HELD_OUT = 24_000, 2_000
BATCH_ROWS, SHARD_ROWS, REPLAYED = 400, 4_000, 4
_JSON = "application/json"


class Line(NamedTuple):
    """A row of the table. bytes: of a row, float64. seconds: of a query, projecting over HTTP included. rate: rows learned a
    second in this run's replay, None when it learned none."""

    model: str
    components: int
    rows: int
    accuracy: float
    bytes: float
    seconds: float
    rate: float | None


class Labelled(NamedTuple):
    """Training and held-out rows: X (rows, features) float64, dense or CSR, y (rows,)."""

    X: Rows
    y: np.ndarray
    X_held_out: Rows
    y_held_out: np.ndarray


def documents() -> Labelled:
    """Made-up documents, by words; those held out are of another seed."""
    return Labelled(*_together(rcv1_like(ROWS, "top4", seed=0)), *_together(rcv1_like(HELD_OUT, "top4", seed=1)))


def digits() -> Labelled:
    """scikit-learn's digits, every fifth row (4, 9, 14 …) held out."""
    X, y = load_digits(return_X_y=True)
    held_out = np.arange(len(y)) % 5 == 4
    return Labelled(X[~held_out], y[~held_out], X[held_out], y[held_out])


def _together(blocks: Iterator[Block]) -> tuple[Rows, np.ndarray]:
    parts = list(blocks)
    return sp.csr_matrix(sp.vstack([part.X for part in parts])), np.concatenate([part.y.row_labels() for part in parts])


def shards_of(folder: Path, data: Labelled) -> list[Path]:
    """The training rows as Arrow IPC shards; those that are there already stay. Raises OutputExists where they are of
    another stream."""
    if not (folder / "manifest.json").exists():
        training = Block(data.X, class_targets(data.y.tolist()))
        writer.write_shards([training], folder, SHARD_ROWS, BATCH_ROWS, n_features=data.X.shape[1])
    there = open_dataset(folder)
    rows = sum(shard.rows for shard in there.shards)
    if rows != len(data.y):
        raise OutputExists(f"{folder} holds {rows} rows, of an earlier demo: take another --dir, or delete that one.")
    return [Path(shard.path) for shard in there.shards]


def replay_shards(
    directory: Path,
    shards: list[Path],
    models: Models,
    watch: Callable[[Any], None] | None = None,
    say: Callable[[str], object] = print,
) -> dict[str, float]:
    """Replay shards through models; rows learned a second, of those that learned any. say: told of compiling."""
    with Directory(directory) as opened:
        for name, (key, params) in models.items():
            opened.add_model(name, key, params)
        warm_up([model.estimator for model in opened.models.values()], say)
        replay(opened, open_dataset(shards), ReplaySettings(test=True), watch)
        return {m.name: m.advanced_rows / m.advance_seconds for m in opened.models.values() if m.advanced_rows}


def post_shards(address: str, shards: list[Path]) -> Iterator[Mapping[str, Any]]:
    """Post each batch of the shards as Arrow, the very last as JSON, under fixed keys; the service's answers."""
    blocks = [block for _, block in open_dataset(shards).events()]
    with Client(address) as client:
        for number, block in enumerate(blocks[:-1]):
            yield client.partial_fit(block.X, block.y, key=f"demo-{number}")
    last = blocks[-1]
    body = {"rows": [_entries(row) for row in last.X], "labels": last.y.row_labels()}
    headers = {"Idempotency-Key": "demo-json"}
    answer = httpx.post(f"{address}/partial_fit?wait=applied", json=body, headers=headers, timeout=60)
    answer.raise_for_status()
    yield answer.json()


def table(address: str, data: Labelled, rates: dict[str, float]) -> list[Line]:
    """Ask POST /transform for the rows of every model; the nearest rows of those held out, and last by all words."""
    lines = []
    with Client(address) as client:
        for name in MODELS:
            told = client.model(name)
            z = np.concatenate([client.transform(part, model=name) for part in _parts(data.X)])
            began = time.perf_counter()
            z_held_out = np.concatenate([client.transform(part, model=name) for part in _parts(data.X_held_out)])
            projecting = time.perf_counter() - began
            accuracy, searching = one_nearest(z, data.y, z_held_out, data.y_held_out)
            seconds = (projecting + searching) / HELD_OUT
            lines.append(Line(name, z.shape[1], told["rows"], accuracy, z.nbytes / len(z), seconds, rates.get(name)))
    accuracy, searching = one_nearest(*data)
    entries = data.X.data.nbytes + data.X.indices.nbytes + data.X.indptr.nbytes
    lines.append(Line(EVERY_WORD, WIDTH, len(data.y), accuracy, entries / len(data.y), searching / HELD_OUT, None))
    return lines


EVERY_WORD = "every word"
"""What the table calls the rows as they came."""


def digits_table(directory: Path) -> list[Line]:
    """Learn the digits into a directory of their own. Return a line a model, and last one of all 64 numbers."""
    data, lines = digits(), []
    rates = replay_shards(directory, shards_of(directory / "shards", data), OF_DIGITS, say=lambda what: None)
    with Directory(directory, writable=False) as opened:
        for name, model in opened.models.items():
            z = transform(model, Block(data.X), opened.schema).z
            began = time.perf_counter()
            z_held_out = transform(model, Block(data.X_held_out), opened.schema).z
            projecting = time.perf_counter() - began
            accuracy, classifying = nearest_class_mean(z, data.y, z_held_out, data.y_held_out)
            seconds = (projecting + classifying) / len(z_held_out)
            lines.append(
                Line(f"digits by {name}", z.shape[1], model.rows, accuracy, z.nbytes / len(z), seconds, rates.get(name))
            )
    accuracy, classifying = nearest_class_mean(*data)
    seconds = classifying / len(data.y_held_out)
    return [*lines, Line("digits as they are", 64, len(data.y), accuracy, data.X.nbytes / len(data.y), seconds, None)]


def report(address: str, directory: Path) -> Path:
    """Write the report of the directory that is served meanwhile, from snapshots of all that it has learned; where."""
    with Client(address) as client:
        for name in MODELS:
            client.snapshot(name, wait=True)
    with Directory(directory, writable=False) as opened:
        write_report(opened, directory / "report.html")
    return directory / "report.html"


def one_nearest(X: Rows, y: np.ndarray, X_test: Rows, y_test: np.ndarray) -> tuple[float, float]:
    """Accuracy of the nearest training row's label, and the seconds that all searches took."""
    classifier = KNeighborsClassifier(1).fit(X, y)
    began = time.perf_counter()
    return float(classifier.score(X_test, y_test)), time.perf_counter() - began


def nearest_class_mean(X: Rows, y: np.ndarray, X_test: Rows, y_test: np.ndarray) -> tuple[float, float]:
    """Return the accuracy of the label whose mean is nearest, and the seconds that took."""
    means = means_by_class(X, y, y.max() + 1)
    began = time.perf_counter()
    return float((nearest(X_test, means) == y_test).mean()), time.perf_counter() - began


def ask_one(address: str, row: Rows) -> dict[str, Any]:
    """GET /transform of one row (1, features) through LDA."""
    answer = httpx.get(f"{address}/transform", params={"model": "lda"} | _words(row), timeout=60)
    answer.raise_for_status()
    return dict(answer.json())


def curl_lines(address: str, row: Rows) -> list[str]:
    """Three commands that work while the service runs."""
    words = "&".join(f"{name}={numbers}" for name, numbers in _words(row).items())
    body = json.dumps({"rows": [_entries(row)]})
    return [
        f"curl '{address}/models'",
        f"curl '{address}/transform?model=lda&{words}'",
        f"curl -H 'Content-Type: {_JSON}' -d '{body}' '{address}/transform?model=ccipca'",
    ]


def _parts(X: Rows) -> list[Rows]:
    """Rows as many at a time as a request may well have."""
    return [X[start : start + 4_000] for start in range(0, X.shape[0], 4_000)]


def _entries(row: Rows) -> dict[str, list[Any]]:
    """A sparse row (1, features) as JSON has it."""
    return {"indices": row.indices.tolist(), "values": row.data.tolist()}


def _words(row: Rows) -> dict[str, str]:
    """A sparse row (1, features) as a query has it."""
    return {name: ",".join(f"{number:g}" for number in numbers) for name, numbers in _entries(row).items()}
