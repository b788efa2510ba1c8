"""Demo: the whole path on real input, through the same functions as `replay`, `serve` and any HTTP client.

scikit-learn's digits (1,797 images of 8 × 8, ten classes) become Arrow shards; every fifth row is held out, whatever
comes of it. Of the ten training shards seven are replayed through four models; the others are posted to the service as
Arrow, the last batch as JSON, with fixed idempotency keys, so that a second run on the same directory learns nothing
twice. Then one table: each model's 1-nearest-neighbour accuracy on the held-out rows beside that of all 64 features.

Why this way: what a newcomer sees work is what the product is made of; there is no second path to keep alive.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

from stream_dr.client.client import Client
from stream_dr.directory.directory import Directory
from stream_dr.plotting.report import write_report
from stream_dr.rows.block import Block
from stream_dr.running.replay import ReplaySettings, replay
from stream_dr.running.warm_up import warm_up
from stream_dr.shards import writer
from stream_dr.shards.dataset import open_dataset
from stream_dr.targets.targets import class_targets

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "class_means": ("class_means", {}),
    "lda": ("lda", {"n_components": 9}),
    "ccipca": ("ccipca", {"n_components": 10}),
    "iskm": ("iskm", {"n_components": 9}),
}
"""Name → registry key and parameters."""

SPLIT = "every fifth row (rows 4, 9, 14 …) is held out"
BATCH_ROWS, SHARD_ROWS, REPLAYED = 48, 144, 7
_JSON = "application/json"


class Line(NamedTuple):
    """A row of the table. rate: rows learned a second in this run's replay, None when it learned none."""

    model: str
    components: int
    rows: int
    rate: float | None
    projected: float
    full: float


class Digits(NamedTuple):
    """Training and held-out rows: X (rows, 64) float64, y (rows,) int64."""

    X: np.ndarray
    y: np.ndarray
    X_held_out: np.ndarray
    y_held_out: np.ndarray


def digits() -> Digits:
    """scikit-learn's digits, split as SPLIT says."""
    X, y = load_digits(return_X_y=True)
    held_out = np.arange(len(y)) % 5 == 4
    return Digits(X[~held_out], y[~held_out], X[held_out], y[held_out])


def digit_shards(folder: Path, data: Digits) -> list[Path]:
    """The training rows as Arrow IPC shards; those that are there already stay."""
    if not (folder / "manifest.json").exists():
        writer.write_shards([Block(data.X, class_targets(data.y.tolist()))], folder, SHARD_ROWS, BATCH_ROWS)
    return [Path(shard.path) for shard in open_dataset(folder).shards]


def replay_shards(
    directory: Path,
    shards: list[Path],
    watch: Callable[[Any], None] | None = None,
    say: Callable[[str], object] = print,
) -> dict[str, float]:
    """Replay shards through the four models; rows learned a second, of those that learned any. say: told of compiling."""
    with Directory(directory) as opened:
        for name, (key, params) in MODELS.items():
            opened.add_model(name, key, params)
        warm_up([model.estimator for model in opened.models.values()], say)
        replay(opened, open_dataset(shards), ReplaySettings(), watch)
        return {m.name: m.advanced_rows / m.advance_seconds for m in opened.models.values() if m.advanced_rows}


def post_shards(address: str, shards: list[Path]) -> Iterator[dict[str, Any]]:
    """Post each batch of the shards as Arrow, the very last as JSON, under fixed keys; the service's answers."""
    blocks = [block for _, block in open_dataset(shards).events()]
    with Client(address) as client:
        for number, block in enumerate(blocks[:-1]):
            yield client.partial_fit(block.X, block.y, key=f"demo-{number}")
    last = blocks[-1]
    body = {"rows": last.X.tolist(), "labels": last.y.row_labels()}
    headers = {"Idempotency-Key": "demo-json"}
    answer = httpx.post(f"{address}/partial_fit?wait=applied", json=body, headers=headers, timeout=60)
    answer.raise_for_status()
    yield answer.json()


def table(address: str, data: Digits, rates: dict[str, float]) -> list[Line]:
    """Ask POST /transform for all rows of every model; 1-NN accuracy on the held-out rows."""
    full = one_nearest(data.X, data.y, data.X_held_out, data.y_held_out)
    lines = []
    with Client(address) as client:
        for name in MODELS:
            told = client.model(name)
            z, z_held_out = client.transform(data.X, model=name), client.transform(data.X_held_out, model=name)
            projected = one_nearest(z, data.y, z_held_out, data.y_held_out)
            lines.append(Line(name, z.shape[1], told["rows"], rates.get(name), projected, full))
    return lines


def report(directory: Path) -> Path:
    """Write the report of the directory, which may be served meanwhile; where."""
    with Directory(directory, writable=False) as opened:
        write_report(opened, directory / "report.html")
    return directory / "report.html"


def one_nearest(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray) -> float:
    """Accuracy of the nearest training row's label."""
    return float(KNeighborsClassifier(1).fit(X, y).score(X_test, y_test))


def ask_one(address: str, x: np.ndarray) -> dict[str, Any]:
    """GET /transform of one row through LDA."""
    answer = httpx.get(f"{address}/transform", params={"model": "lda", "x": _numbers(x)}, timeout=60)
    answer.raise_for_status()
    return dict(answer.json())


def curl_lines(address: str, x: np.ndarray) -> list[str]:
    """Three commands that work while the service runs."""
    row = _numbers(x)
    return [
        f"curl '{address}/models'",
        f"curl '{address}/transform?model=lda&x={row}'",
        f"""curl -H 'Content-Type: {_JSON}' -d '{{"rows": [[{row}]]}}' '{address}/transform?model=ccipca'""",
    ]


def _numbers(x: np.ndarray) -> str:
    return ",".join(f"{value:g}" for value in x)
