"""Measure the board of limits: the time of our work beside the time of a known limit.

    python -m benchmarks.limits [--quick | --slow] [--only WORDS] [--update]

The limit is a product by numpy or scipy on the same rows, or, where Python's overhead decides, another library that
learns them row by row. The table has the ratio (time of the limit / ours, alternated in one run, median) and the ratio
committed in limits.toml. A row below .75 of its committed ratio in two runs is named, and the exit status is 1.

A ratio to a BLAS product moves by a factor of 2 between processors. limits.toml therefore names the machine by
OpenBLAS's core name; on another machine these rows are printed and not judged. All other rows are judged everywhere.

--quick: the first rows of each kind. --slow: also rows that take over two seconds. --update: write the measured ratios.
Timings drift with a machine's load: only ratios of one run mean something, and those of idle cores more.
"""

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

COMMITTED = Path(__file__).with_suffix(".toml")
FALLEN = 0.75
"""Share of the committed ratio below which a row is named."""
BLAS_LIMITS = ("X.T@X", "x.T@x a call", "cholesky", "B.T@B")
"""Limits that are products or factors by BLAS."""
ROUNDS = 7
WIDE, WORDS = 47_236, 84
"""Columns of the sparse rows, and words of each."""

Work = Callable[[], object]


class Row(NamedTuple):
    """name: key in limits.toml. rows, batch, threads, dtype: of the work. limit: in words. make: the work and its limit.
    kind: "quick", "" or "slow"."""

    name: str
    rows: int
    batch: int
    limit: str
    make: Callable[["Row"], contextlib.AbstractContextManager[tuple[Work, Work]]]
    threads: int = 1
    dtype: str = "float64"
    kind: str = ""


def dense(row: Row, width: int, make: Callable[[], Any]) -> Iterator[tuple[Work, Work]]:
    """Yield learning dense rows, and X.T @ X of all rows or of each row by itself."""
    import numpy as np

    X = np.random.default_rng(0).normal(size=(row.rows, width)).astype(row.dtype)
    y = np.arange(row.rows) % 10
    given = batches(X, y, row.batch)
    limit = (lambda: [x.T @ x for x, _ in given]) if row.batch == 1 else (lambda: X.T @ X)
    yield partial(learned, make, given), limit


def beside_naive_bayes(row: Row, width: int, make: Callable[[], Any]) -> Iterator[tuple[Work, Work]]:
    """Yield learning dense rows, and scikit-learn's GaussianNB.partial_fit of the same batches."""
    import numpy as np
    from sklearn.naive_bayes import GaussianNB

    X = np.random.default_rng(0).normal(size=(row.rows, width))
    y = np.arange(row.rows) % 10
    parts = batches(X, y, row.batch)

    def learn_peer() -> None:
        peer = GaussianNB()
        for x, labels in parts:
            peer.partial_fit(x, labels, classes=range(10))

    yield partial(learned, make, parts), learn_peer


def beside_scaler(row: Row, width: int, make: Callable[[], Any]) -> Iterator[tuple[Work, Work]]:
    """Yield learning dense rows, and river's StandardScaler.learn_one of each row."""
    import numpy as np

    X = np.random.default_rng(0).normal(size=(row.rows, width))
    dicts = [dict(enumerate(x)) for x in X.tolist()]
    yield partial(learned, make, batches(X, np.arange(row.rows) % 10, row.batch)), partial(scaled_by_river, dicts)


def scaled_by_river(dicts: list[dict[int, float]]) -> None:
    """Learn rows by river's StandardScaler, one at a time."""
    from river.preprocessing import StandardScaler

    scaler = StandardScaler()
    for x in dicts:
        scaler.learn_one(x)


def sparse(row: Row, make: Callable[[], Any], columns: int, products: int) -> Iterator[tuple[Work, Work]]:
    """An estimator of sparse rows, beside X.T @ Y (rows, columns), or beside X @ V and X.T @ (X @ V)."""
    import numpy as np

    X, y = words(row.rows, columns)
    Y, V = np.eye(columns)[y], np.random.default_rng(1).normal(size=(WIDE, columns))
    limit = (lambda: X.T @ Y) if products == 1 else (lambda: X.T @ (X @ V))
    yield partial(learned, make, batches(X, y, row.batch)), limit


def projected(row: Row) -> Iterator[tuple[Work, Work]]:
    """Yield transform of sparse rows, and X @ W or, for one row a call, river's StandardScaler.learn_one."""
    import stream_dr

    X, y = words(4_000, 11)
    model = stream_dr.LDA(gamma=1.0, n_components=10).partial_fit(X, y)
    W, asked = model.components_.T.copy(), [X[i : i + row.batch] for i in range(0, row.rows, row.batch)]
    dicts = [dict(zip(x.indices.tolist(), x.data.tolist(), strict=True)) for x in asked] if row.batch == 1 else []
    limit = partial(scaled_by_river, dicts) if dicts else lambda: [part @ W for part in asked]
    yield lambda: [model.transform(part) for part in asked], limit


def solved(row: Row, labels: int) -> Iterator[tuple[Work, Work]]:
    """solve, beside the Gram matrix of its cross sums, or the Cholesky factor of its scatter."""
    import numpy as np

    import stream_dr

    if labels > 100:
        model = stream_dr.LDA(gamma=1.0).partial_fit(*words(row.rows, labels))
        B = np.ascontiguousarray(model.state_.centred().cross)
        limit = partial(np.matmul, B.T, B)
    else:
        X = np.random.default_rng(0).normal(size=(row.rows, 784))
        model = stream_dr.LDA(gamma=1.0, scatter="exact").partial_fit(X, np.arange(row.rows) % labels)
        limit = partial(np.linalg.cholesky, X.T @ X)
    yield partial(model.solve, model.state_), limit


def replayed(row: Row) -> Iterator[tuple[Work, Work]]:
    """A replay of shards into a new directory, beside learning the same batches in memory."""
    import numpy as np

    import stream_dr
    from stream_dr.batch.targets import class_targets
    from stream_dr.running.replay import ReplaySettings, replay
    from stream_dr.shards.dataset import ShardWriter, open_dataset

    X = np.random.default_rng(0).normal(size=(row.rows, 64))
    y = [f"c{i % 10}" for i in range(row.rows)]
    with tempfile.TemporaryDirectory() as folder:
        with ShardWriter(Path(folder) / "S", row.rows, row.batch) as writer:
            for i in range(0, row.rows, row.batch):
                writer.write(stream_dr.Block(X[i : i + row.batch], class_targets(y[i : i + row.batch])))
            writer.close()
        dataset = open_dataset(Path(folder) / "S")

        def replay_all() -> None:
            with tempfile.TemporaryDirectory() as made, stream_dr.Directory(made) as directory:
                directory.add_model("m", "lda", {"gamma": 1.0})
                replay(directory, dataset, ReplaySettings())

        yield replay_all, partial(learned, lambda: stream_dr.LDA(gamma=1.0), batches(X, np.array(y), row.batch))


def read(row: Row, medium: str) -> Iterator[tuple[Work, Work]]:
    """A body of rows read, beside copying it (Arrow), or orjson.loads and np.array of it (JSON)."""
    import numpy as np
    import orjson

    from stream_dr.batch.arrow import arrow_from_block, block_from_arrow, read_arrow, write_arrow
    from stream_dr.batch.block import Block
    from stream_dr.directory.draft import parse_rows

    X = np.random.default_rng(0).normal(size=(row.rows, 384))
    if medium == "json":
        text = orjson.dumps({"rows": X.tolist()})
        yield partial(parse_rows, text, "json", None), lambda: np.array(orjson.loads(text)["rows"])
    else:
        body = bytes(write_arrow([arrow_from_block(Block(X))]))
        yield lambda: block_from_arrow(read_arrow(body)), lambda: bytearray(body)


def served(row: Row, method: str) -> Iterator[tuple[Work, Work]]:
    """Requests of a running service, one after the other on one connection, beside its route /livez, which does nothing."""
    import numpy as np

    from benchmarks.service import ARROW, put, request, service
    from stream_dr.batch.arrow import arrow_from_block, write_arrow
    from stream_dr.batch.block import Block
    from stream_dr.batch.targets import class_targets

    X = np.random.default_rng(0).normal(size=(1_000, 20))
    body = bytes(write_arrow([arrow_from_block(Block(X, class_targets(["ab"[i % 2] for i in range(1_000)])))]))
    path = "/transform?model=m&x=" + ",".join(["1"] * 20) if method == "GET" else "/partial_fit"
    with tempfile.TemporaryDirectory() as folder, service(Path(folder) / "D") as (port, _):
        put(port, "m", "lda", {"gamma": 1.0})
        request(port, "POST", "/partial_fit?wait=applied", body)
        connection = HTTPConnection("127.0.0.1", port, timeout=60)

        def ask(method: str, path: str, body: bytes | None = None) -> None:
            for _ in range(row.rows):
                connection.request(method, path, body, {"Content-Type": ARROW} if body else {})
                answer = connection.getresponse()
                answer.read()
                if answer.status != 200:
                    raise SystemExit(f"{method} {path}: {answer.status}")

        yield partial(ask, method, path, body if method == "POST" else None), partial(ask, "GET", "/livez")
        connection.close()


def rows() -> list[Row]:
    """The board's rows."""
    import stream_dr as sdr

    def lda(**more: Any) -> Callable[[], Any]:
        return lambda: sdr.LDA(gamma=1.0, **more)

    def row(name: str, count: int, batch: int, limit: str, work: Any, *args: Any, **more: Any) -> Row:
        return Row(name, count, batch, limit, lambda row: contextlib.contextmanager(work)(row, *args), **more)

    exact, two, xx = lda(scatter="exact"), "X@V, X.T@(X@V)", "X.T@X"
    bayes, scaler = "GaussianNB", "StandardScaler"
    ccipca, iskm = (lambda p: lambda: sdr.CCIPCA(p)), (lambda: sdr.IncrementalSKM(3))
    return [
        row("LDA dense d=784", 8_000, 1_000, xx, dense, 784, exact, kind="quick"),
        row("LDA dense d=784, two threads", 8_000, 1_000, xx, dense, 784, exact, threads=2, kind="quick"),
        row("LDA dense d=784, float32", 8_000, 1_000, xx, dense, 784, exact, dtype="float32"),
        row("LDA dense d=784, 32 rows a call", 2_048, 32, xx, dense, 784, exact),
        row("LDA dense d=784, one row a call", 200, 1, "x.T@x a call", dense, 784, exact),
        row("LDA dense d=64", 50_000, 1_000, xx, dense, 64, exact),
        row("LDA dense d=20", 100_000, 1_000, bayes, beside_naive_bayes, 20, exact, kind="quick"),
        row("LDA dense d=20, one row a call", 1_000, 1, bayes, beside_naive_bayes, 20, exact, kind="quick"),
        row("LDA sparse k=4", 24_000, 1_000, "X.T@Y", sparse, lda(), 4, 1, kind="quick"),
        row("LDA sparse k=4, 8,000 rows a call", 24_000, 8_000, "X.T@Y", sparse, lda(), 4, 1),
        row("CCIPCA sparse p=10", 8_000, 1_000, two, sparse, ccipca(10), 10, 2, kind="quick"),
        row("CCIPCA sparse p=50", 4_000, 1_000, two, sparse, ccipca(50), 50, 2),
        row("CCIPCA dense d=20, p=10", 20_000, 1_000, scaler, beside_scaler, 20, ccipca(10)),
        row("IncrementalSKM sparse p=3", 8_000, 1_000, two, sparse, iskm, 4, 2),
        row("IncrementalSKM dense d=20", 20_000, 1_000, scaler, beside_scaler, 20, iskm),
        row("transform sparse p=10", 8_000, 1_000, "X@W", projected),
        row("transform of one sparse row", 500, 1, scaler, projected, kind="quick"),
        row("solve LDA d=784, k=10", 2_000, 2_000, "cholesky", solved, 10),
        row("solve LDA sparse k=500", 20_000, 20_000, "B.T@B", solved, 500, kind="slow"),
        row("replay LDA d=64", 50_000, 1_000, "in memory", replayed),
        row("read Arrow 1,000 × 384", 1_000, 1_000, "a copy", read, "arrow"),
        row("read JSON 1,000 × 384", 1_000, 1_000, "loads, np.array", read, "json"),
        row("GET /transform", 200, 1, "GET /livez", served, "GET"),
        row("POST /partial_fit 1,000 × 20", 50, 1_000, "GET /livez", served, "POST"),
    ]


def batches(X: Any, y: Any, size: int) -> list[tuple[Any, Any]]:
    """Rows and targets, so many at a time."""
    return [(X[i : i + size], y[i : i + size]) for i in range(0, X.shape[0], size)]


def learned(make: Callable[[], Any], given: list[tuple[Any, Any]]) -> Any:
    """A new estimator that has learned batches."""
    model = make()
    for X, y in given:
        model.partial_fit(X, y)
    return model


def words(count: int, labels: int) -> tuple[Any, Any]:
    """Sparse rows (count, WIDE) of WORDS values each, and labels."""
    import numpy as np
    from scipy import sparse as sp

    rng = np.random.default_rng(77)
    X = sp.random(count, WIDE, WORDS / WIDE, format="csr", rng=rng)
    X.sort_indices()
    return X, rng.integers(0, labels, count)


def measured(row: Row, rounds: int) -> float:
    """Time of the limit over ours: each asked in turn, the median of so many rounds."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(row.threads), row.make(row) as (ours, limit):
        ours()
        repeats = max(1, round(0.02 / max(seconds(limit), 1e-6)))  # a limit of microseconds is asked several times

        def limit_time() -> float:
            return seconds(lambda: [limit() for _ in range(repeats)]) / repeats

        found = []
        for _ in range(rounds):
            before, mine, after = limit_time(), seconds(ours), limit_time()
            found.append((before + after) / 2 / mine)
    return statistics.median(found)


def seconds(work: Work) -> float:
    """Wall time of a call."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


class Committed(NamedTuple):
    """Content of limits.toml.

    machine: OpenBLAS's core name where the ratios were measured.
    ratios: ratio by name of a row.
    """

    machine: str
    ratios: dict[str, float]


def read_committed(path: Path) -> Committed:
    """Return what `--update` wrote, or nothing if there is no file."""
    content = tomllib.loads(path.read_text()) if path.exists() else {}
    return Committed(content.get("machine", ""), content.get("ratio", {}))


def judged(rows: list[Row], committed: Committed, machine: str) -> dict[str, float]:
    """Return the committed ratios of the rows that are judged on this machine, by name."""
    here = machine == committed.machine
    return {
        row.name: committed.ratios[row.name]
        for row in rows
        if row.name in committed.ratios and (here or row.limit not in BLAS_LIMITS)
    }


def fallen(ratios: dict[str, float], limits: dict[str, float]) -> list[str]:
    """Return the names of the rows whose ratio is below FALLEN of its limit."""
    return [name for name, ratio in ratios.items() if name in limits and ratio < FALLEN * limits[name]]


def board(chosen: list[Row], committed: Committed, machine: str, measure: Callable[[Row], float]) -> dict[str, float]:
    """Measure and print every row. Return the ratios by name.

    A judged row that has fallen is measured again, and the better ratio counts.
    """
    print(f"{'what':34} {'rows':>7} {'batch':>6} {'threads':>7} {'dtype':8} {'limit':16} {'ratio':>7} {'committed':>9}")
    limits = judged(chosen, committed, machine)
    ratios = {}
    for row in chosen:
        ratio = measure(row)
        if fallen({row.name: ratio}, limits):
            ratio = max(ratio, measure(row))
        ratios[row.name] = ratio

        before = f"{committed.ratios[row.name]:9.3f}" if row.name in committed.ratios else f"{'-':>9}"
        note = "" if row.name in limits else "  not judged here"
        work = f"{row.rows:7,} {row.batch:6,} {row.threads:7} {row.dtype:8} {row.limit:16}"
        print(f"{row.name:34} {work} {ratio:7.3f} {before}{note}", flush=True)
    return ratios


def main() -> int:
    """Run the command line. Return 1 if a row has fallen."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.limits", description=__doc__.partition("\n")[0])
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--quick", action="store_true", help="the first rows of each kind, half a minute")
    which.add_argument("--slow", action="store_true", help="also rows that take over two seconds")
    parser.add_argument("--only", default="", help="rows whose name contains this text")
    parser.add_argument("--update", action="store_true", help="write the measured ratios to limits.toml")
    options = parser.parse_args()

    # threadpool_info reports the libraries that are loaded.
    import numpy  # noqa: F401
    import scipy.linalg  # noqa: F401
    from threadpoolctl import threadpool_info

    pools = threadpool_info()
    for pool in pools:
        name = Path(pool["filepath"]).name
        core = pool.get("architecture", "unknown")
        print(f"{pool['internal_api']} {pool.get('version')} of {name}, {pool['num_threads']} threads, core {core}")
    machine = next((pool["architecture"] for pool in pools if pool["internal_api"] == "openblas"), "unknown")
    committed = read_committed(COMMITTED)
    if machine != committed.machine:
        print(f"Rows against BLAS are not judged: the ratios are of {committed.machine or 'no machine'}.")

    kinds = {"quick"} if options.quick else {"quick", "", "slow"} if options.slow else {"quick", ""}
    chosen = [row for row in rows() if row.kind in kinds and options.only in row.name]
    ratios = board(chosen, committed, machine, partial(measured, rounds=3 if options.quick else ROUNDS))
    if options.update:
        write_committed(COMMITTED, committed, machine, ratios)
        return 0

    limits = judged(chosen, committed, machine)
    names = fallen(ratios, limits)
    for name in names:
        print(f"{name}: {ratios[name]:.3f}, below {FALLEN} of {limits[name]:.3f}, twice", file=sys.stderr)
    return int(bool(names))


def write_committed(path: Path, committed: Committed, machine: str, ratios: dict[str, float]) -> None:
    """Write the measured ratios, beside those of rows that were not measured.

    Ratios against BLAS that another machine measured are dropped: one file has the ratios of one machine.
    """
    known = {row.name for row in rows()}
    merged = judged(rows(), committed, machine) | ratios
    lines = [f'"{name}" = {ratio:.3f}' for name, ratio in merged.items() if name in known]
    head = ["# Written by python -m benchmarks.limits --update", f'machine = "{machine}"', "", "[ratio]"]
    path.write_text("\n".join([*head, *lines]) + "\n")


if __name__ == "__main__":
    sys.exit(main())
