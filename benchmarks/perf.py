"""Figures of one thing each, measured by one subcommand.

    python -m benchmarks.perf generate_rate [--rows 100000]
    python -m benchmarks.perf learn_csv [--rows 400000] [--rounds 5]
    python -m benchmarks.perf log_append [--bytes 100000000] [--dir D]
    python -m benchmarks.perf prose [--rows 500 1000 2000 4000 8000]
    python -m benchmarks.perf tables [--csv titanic.csv --label survived]
    python -m benchmarks.perf unlearning [--rows 1000000] [--ids 10000] [--events 100] [--dir D]

`python -m benchmarks.perf NAME --help` describes what one of them prints.
"""

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from threadpoolctl import threadpool_limits

import stream_dr
from stream_dr.batch.arrow import arrow_from_block, write_arrow
from stream_dr.batch.block import Block
from stream_dr.datasets.generate import (
    TOP_SHARES,
    build_vocabulary,
    generate_rcv1_like,
    write_rcv1_like_shards,
)
from stream_dr.datasets.sources import open_source
from stream_dr.directory.directory import Directory
from stream_dr.directory.draft import Receipt, rows_draft, unlearn_draft
from stream_dr.directory.learned_sources import write_owned_shards
from stream_dr.estimators import make
from stream_dr.log.event import EventDraft, xxh64_digest
from stream_dr.log.log import Log
from stream_dr.models.snapshot import state_sha256
from stream_dr.running.advance import backfill
from stream_dr.running.replay import ReplaySettings, replay
from stream_dr.shards.dataset import open_dataset


def seconds(work: Callable[..., object], *arguments: Any) -> float:
    """Return the wall time of one call."""
    begun = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - begun


def generate_rate(options: argparse.Namespace) -> None:
    """Print how fast generated rows are drawn and written, and their statistics beside RCV1's."""
    rows = options.rows
    build_vocabulary()
    entries, labels = 0, Counter[object]()

    def draw() -> None:
        nonlocal entries
        for block in generate_rcv1_like(rows):
            entries += block.X.nnz
            labels.update(block.y.labels[code] for code in block.y.codes.tolist())

    drawn = seconds(draw)
    with tempfile.TemporaryDirectory() as folder:
        written = seconds(write_rcv1_like_shards, Path(folder) / "shards", rows)
        size = sum(file.stat().st_size for file in Path(folder).rglob("*.arrow"))
    print(f"drawn {rows / drawn:,.0f} rows/s; drawn and written {rows / written:,.0f} rows/s, {size / 1e6:.0f} MB")
    print(f"{entries / rows:.1f} nonzeros and {sum(labels.values()) / rows:.2f} labels a row, {len(labels)} labels")
    print({top: f"{labels[top] / rows:.3f} (RCV1 {share})" for top, share in TOP_SHARES.items()})


def learn_csv(options: argparse.Namespace) -> None:
    """Print how fast a CSV of 20 numeric columns is learned, beside pyarrow reading it.

    The three alternate, and medians are printed. `fit_csv` is `stream_dr.fit(LDA(), path)`. `replay_csv` does what
    `stream-dr learn` does: it writes shards into a directory and replays them through a model.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "small.csv"
        write_csv(path, options.rows // 10)
        ways = (read_csv, fit_csv, replay_csv)
        for way in ways:  # compiles, and takes the memory of a tenth of the file
            way(path)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        path = path.with_name("data.csv")
        # In a process of its own, whose memory is not counted.
        program = "import sys; from pathlib import Path; from benchmarks.perf import write_csv\n"
        program += "write_csv(Path(sys.argv[1]), int(sys.argv[2]))"
        subprocess.run([sys.executable, "-c", program, str(path), str(options.rows)], check=True)
        times = [[seconds(way, path) for way in ways] for _ in range(options.rounds)]
        medians = [statistics.median(column) for column in zip(*times, strict=True)]
        for way, median in zip(ways, medians, strict=True):
            rate = options.rows / median
            print(f"{way.__name__:10} {rate:12,.0f} rows/s  {medians[0] / median:5.2f} of reading")
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        size = path.stat().st_size >> 20
        print(f"peak memory grew by {grown:.0f} MiB from a tenth of {size} MiB to all of it")


def write_csv(path: Path, rows: int) -> None:
    """Write a file of 20 numbers of six digits and a class a row."""
    X = np.random.default_rng(0).normal(size=(rows, 20)).round(6)
    columns = {f"c{j}": X[:, j] for j in range(20)} | {"y": np.where(X[:, 0] > 0, "up", "down")}
    pacsv.write_csv(pa.table(columns), path)


def read_csv(path: Path) -> None:
    """Read the file with pyarrow's streaming reader."""
    with pacsv.open_csv(path) as reader:
        for _ in reader:
            pass


def fit_csv(path: Path) -> None:
    """Learn the file in memory."""
    stream_dr.fit(stream_dr.LDA(), path, label="y", progress=False)


def replay_csv(path: Path) -> None:
    """Learn the file into a directory."""
    directory = path.parent / "d"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    shards = write_owned_shards(directory, open_source(path, label="y"))
    with Directory(directory) as opened:
        opened.add_model("lda", "lda", {})
        replay(opened, open_dataset(shards), ReplaySettings())


APPENDS = ((300, 1), (8_000, 1), (8_000, 32), (100_000, 1), (100_000, 8), (1_000_000, 1), (1_000_000, 4))
APPENDS = (*APPENDS, (1_000_000, 16))
"""Bytes of a body, and bodies in a group."""


def log_append(options: argparse.Namespace) -> None:
    """Print how fast the log appends, by size of body and of group, beside a bare file.

    "bare file" is the time of a file that is written and synced once a group (pwritev, fdatasync), as a part of the
    log's. Events are read back 100 at a time. The two alternate, and medians of five are printed.
    """
    print("body bytes group  appends/s   MB/s  ms/group  bare file  read MB/s")
    for size, group in APPENDS:
        print(_appends(size, group, options.bytes, options.dir), flush=True)


def _appends(size: int, group: int, total: int, where: str | None) -> str:
    """Return one line of the table."""
    body = os.urandom(size)
    groups = max(min(total // size, 500) // group, 1)
    times: list[tuple[float, float, float]] = []
    for _ in range(5):
        with tempfile.TemporaryDirectory(dir=where) as folder:
            logged = append_log(Path(folder) / "log", body, group, groups)
            times.append((*logged, append_file(Path(folder) / "file", body, group, groups)))
    log, read, file = (statistics.median(column) for column in zip(*times, strict=True))
    mb = size * group * groups / 1e6
    rates = f"{group * groups / log:>10.0f} {mb / log:>6.0f} {1e3 * log / groups:>9.2f} {file / log:>10.2f}"
    return f"{size:>10} {group:>5} {rates} {mb / read:>10.0f}"


def append_log(folder: Path, body: bytes, group: int, groups: int) -> tuple[float, float]:
    """Return the seconds of appending groups of bodies, and of reading them."""
    drafts = [EventDraft("rows", None, xxh64_digest(body), 100, body)] * group
    with Log(folder) as log:

        def read() -> None:
            after = -1
            while events := log.read(after):
                after = events[-1].position

        return seconds(lambda: [log.append(drafts) for _ in range(groups)]), seconds(read)


def append_file(path: Path, body: bytes, group: int, groups: int) -> float:
    """Return the seconds of writing the same bytes into one file, synced once a group."""
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    begun = time.perf_counter()
    for number in range(groups):
        os.pwritev(file, [body] * group, number * group * len(body))
        os.fdatasync(file)
    taken = time.perf_counter() - begun
    os.close(file)
    return taken


TESTED, BATCH = 3000, 1000
WAYS: dict[str, tuple[dict[str, object], float]] = {
    "without": ({"drop": ["note"]}, 0.0),
    "no ridge": ({}, 0.0),
    "gamma 20": ({}, 20.0),
}
"""Options of the map and `gamma` of LDA, by name in the table of `prose`."""


def prose(options: argparse.Namespace) -> None:
    """Print what a column of prose costs and gains beside other columns.

    The figures are accuracies of LDA on made-up tables of two numbers, a category and a note of twelve words of 3,000.
    The note tells nothing, or two of its words tell the class.
    """
    print(f"{'rows':>5}  {'prose tells':>11}  " + "  ".join(f"{way:>8}" for way in WAYS))
    for rows in options.rows:
        for informative in (False, True):
            figures = [accuracy(*way, rows, informative) for way in WAYS.values()]
            told = "the class" if informative else "nothing"
            print(f"{rows:5}  {told:>11}  " + "  ".join(f"{figure:8.3f}" for figure in figures), flush=True)


def notes(rows: int, seed: int, informative: bool) -> tuple[list[dict[str, object]], np.ndarray]:
    """Return rows and their classes (rows,), three of them."""
    random, words = np.random.default_rng(seed), np.arange(1, 3001)
    y, frequency = random.integers(0, 3, rows), 1.0 / (words + 1) / (1.0 / (words + 1)).sum()
    made: list[dict[str, object]] = []
    for label in y.tolist():
        note = random.choice(words, 12, p=frequency)
        if informative and random.random() < 0.7:
            note[:2] = 100 + 20 * label + random.integers(0, 20, 2)
        made.append(
            {
                "a": float(random.normal() + 0.8 * label),
                "b": float(100 + 20 * random.normal() - 15 * (label == 1)),
                "c": "uvw"[int(label + (random.random() < 0.5) * random.integers(0, 3)) % 3],
                "note": " ".join(f"w{word}" for word in note),
            }
        )
    return made, y


def accuracy(options: dict[str, object], gamma: float, rows: int, informative: bool) -> float:
    """Return the accuracy on held-out rows of LDA, learned batch by batch."""
    X, y = notes(rows, 1, informative)
    held_out, expected = notes(TESTED, 2, informative)
    lda = stream_dr.LDA(gamma=gamma, feature_map=stream_dr.table(**options))
    for start in range(0, rows, BATCH):
        lda.partial_fit(X[start : start + BATCH], y[start : start + BATCH])
    return float(np.mean(lda.predict(held_out) == expected))


SYLLABLES = ["ka", "lo", "mi", "ra", "ten", "vo", "shi", "ber", "dal", "son"]


def tables(options: argparse.Namespace) -> None:
    """Print the 5-fold accuracy on a raw table of LDA behind a table map, and behind a ColumnTransformer.

    Logistic regression follows LDA in each. The second figures are without the columns that tell the answer.
    Without --csv the table is made from a fixed seed. It has the 14 columns of the Titanic's passenger list, their kinds,
    gaps and numbers of values, and a made-up rule of survival, so its figures say nothing of the Titanic.
    """
    X, y = passengers()
    if options.csv:
        X = pd.read_csv(options.csv)
        y = X.pop(options.label)
    report = stream_dr.describe_table(X)
    print(report, f"\n{report.used} of {len(X.columns)} columns are used")
    numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    categories = OneHotEncoder(handle_unknown="ignore", min_frequency=5, sparse_output=False)
    fields = make_column_transformer(
        (numbers, make_column_selector(dtype_include="number")),
        (categories, make_column_selector(dtype_exclude="number")),
    )
    last = LogisticRegression(max_iter=1000)
    ways = {
        "ColumnTransformer, LDA": make_pipeline(fields, LinearDiscriminantAnalysis(), last),
        "table, LDA": make_pipeline(stream_dr.LDA(feature_map=stream_dr.table()), last),
        "table, LDA(gamma=1)": make_pipeline(stream_dr.LDA(gamma=1.0, feature_map=stream_dr.table()), last),
        "table(n_hashed=1), LDA": make_pipeline(stream_dr.LDA(feature_map=stream_dr.table(n_hashed=1)), last),
    }
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    for columns in (list(X), [c for c in X if c not in ("boat", "body")]):
        for name, way in ways.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                begun = time.perf_counter()
                scores = cross_val_score(way, X[columns], y, cv=folds)
            taken = time.perf_counter() - begun
            print(f"{len(columns)} columns, {name}: {scores.mean():.4f} ± {scores.std():.4f}, {taken:.1f} s")


def passengers(rows: int = 1309, seed: int = 0) -> tuple[pd.DataFrame, pd.Series]:
    """Return the made-up list, and which passengers survived."""
    rng = np.random.default_rng(seed)
    pclass = rng.choice([1, 2, 3], rows, p=[0.25, 0.21, 0.54])
    sex = np.where(rng.random(rows) < 0.36, "female", "male")
    age = np.clip(rng.normal(44 - 5 * pclass, 13), 0.5, 80).round(1)
    sibsp, parch = rng.poisson(0.5, rows), rng.poisson(0.4, rows)
    embarked = rng.choice(["S", "C", "Q"], rows, p=[0.7, 0.2, 0.1])
    odds = (
        -1.0 + 2.5 * (sex == "female") + 0.9 * (2 - pclass) - 0.02 * (age - 30) + 0.3 * (embarked == "C") - 0.2 * sibsp
    )
    survived = rng.random(rows) < 1 / (1 + np.exp(-odds))
    title = np.where(sex == "female", rng.choice(["Miss.", "Mrs."], rows), np.where(age < 14, "Master.", "Mr."))

    def word() -> str:
        return "".join(rng.choice(SYLLABLES, 3)).title()

    def some(values: list[str], share: np.ndarray | float) -> list[str | None]:
        return [v if there else None for v, there in zip(values, rng.random(rows) < share, strict=True)]

    rooms = zip(rng.choice(list("ABCDE"), rows), rng.integers(1, 60, rows), strict=True)
    homes = [f"{word()}, {town}" for town in rng.choice(["NY", "Cork", "Oslo"], rows)]
    table = pd.DataFrame(
        {
            "pclass": pclass,
            "name": [f"{word()}, {t} {word()} {word()}" for t in title],
            "sex": sex,
            "age": np.where(rng.random(rows) < 0.2, np.nan, age),
            "sibsp": sibsp,
            "parch": parch,
            "ticket": [f"{rng.choice(['PC ', 'CA ', '', ''])}{v}" for v in rng.integers(1000, 1950, rows)],
            "fare": np.exp(rng.normal(5.2 - 0.85 * pclass, 0.5)).round(4),
            "cabin": some([f"{c}{i}" for c, i in rooms], np.where(pclass == 1, 0.7, 0.08)),
            "embarked": some(embarked.tolist(), 0.998),
            "boat": some([str(v) for v in rng.integers(1, 17, rows)], np.where(survived, 0.95, 0.0)),
            "body": np.where(~survived & (rng.random(rows) < 0.15), rng.integers(1, 330, rows), np.nan),
            "home.dest": some(homes, 0.57),
        }
    )  # fmt: skip
    return table, pd.Series(survived.astype(int), name="survived")


def unlearning(options: argparse.Namespace) -> None:
    """Print how fast ids are appended and looked up, and a log with unlearn events is learned.

    Dense rows (d = 20) come in batches of 1,000, each row with an id. Ids are looked up one a request, and --ids / --events
    a request. A new `ccipca` (p = 10) and a new `pca` learn the log before and after the ids were unlearned. The state of
    the recurrence is compared, bit by bit, with one that learned the remaining rows.
    """
    with tempfile.TemporaryDirectory(dir=options.dir) as folder, threadpool_limits(1):
        measure_unlearning(Path(folder), options.rows, options.ids, options.events)


FEATURES = 20
MODELS: dict[str, dict[str, Any]] = {"ccipca": {"n_components": 10}, "pca": {"n_components": 10}}


def named_body(number: int, ids: bool) -> bytes:
    """Return one batch as Arrow."""
    random = np.random.default_rng(number)
    named = [f"user-{key:012x}" for key in _keys(number)] if ids else None
    X = random.normal(size=(BATCH, FEATURES)) * np.linspace(3, 1, FEATURES)
    return bytes(write_arrow([arrow_from_block(Block(X, ids=named))]))


def _keys(number: int) -> list[int]:
    return [(number * BATCH + row) * 2654435761 % (1 << 44) for row in range(BATCH)]


def appended(directory: Directory, batches: int, ids: bool) -> float:
    """Return the rows/s of parsing and appending batches, one at a time."""
    seconds = 0.0
    for number in range(batches):
        sent = named_body(number, ids)
        begun = time.perf_counter()
        (answer,) = directory.append([rows_draft(sent)])
        seconds += time.perf_counter() - begun
        assert isinstance(answer, Receipt), answer
    return batches * BATCH / seconds


def learned(directory: Directory, key: str) -> float:
    """Return the seconds in which a new model learns the log."""
    model, _ = directory.add_model("new", key, MODELS[key])
    taken = seconds(lambda: backfill(directory, [model], directory.position))
    assert model.failure is None, model.failure
    if not model.can_subtract_rows:
        assert state_sha256(model.accumulator.freeze()) == rebuilt(directory, key)
    directory.remove_model("new")
    return taken


def rebuilt(directory: Directory, key: str) -> str:
    """Return the digest of a state that learned the remaining rows."""
    accumulator = make(key, MODELS[key]).accumulator()
    for _, block in directory.history.events():
        accumulator.add(block)
    return state_sha256(accumulator.freeze())


def looked_up(directory: Directory, ids: list[str], each: int) -> float:
    """Return the median milliseconds an id, with `each` ids in a request."""
    requests = [ids[i : i + each] for i in range(0, len(ids), each)]
    return (
        1e3
        * statistics.median(seconds(directory.history.parse_named_removal, [], request) for request in requests)
        / each
    )


def unlearn(directory: Directory, ids: list[str], events: int) -> None:
    """Unlearn the ids in this number of events."""
    for some in np.array_split(np.array(ids), events):
        directory.append([unlearn_draft(directory.history.parse_named_removal([], some.tolist()))])


def measure_unlearning(folder: Path, rows: int, count: int, events: int) -> None:
    """Print the figures."""
    batches = rows // BATCH
    chosen = np.random.default_rng(0).choice(batches * BATCH, count, replace=False).tolist()
    ids = [f"user-{_keys(number // BATCH)[number % BATCH]:012x}" for number in chosen]
    with Directory(folder / "bare") as bare:
        print(f"appended without ids  {appended(bare, min(batches, 300), ids=False):>12.0f} rows/s", flush=True)
    with Directory(folder / "named") as directory:
        print(f"appended with ids     {appended(directory, batches, ids=True):>12.0f} rows/s", flush=True)
        for each in (1, max(1, count // events)):
            print(
                f"looked up, {each:>3} at once {looked_up(directory, ids[: 20 * each], each):>11.2f} ms an id",
                flush=True,
            )

        before = {key: statistics.median(learned(directory, key) for _ in range(3)) for key in MODELS}
        print(f"unlearned             {seconds(lambda: unlearn(directory, ids, events)):>12.2f} s", flush=True)
        for key, bare_seconds in before.items():
            after = statistics.median(learned(directory, key) for _ in range(3))
            print(f"{key:<8} {bare_seconds:.2f} s before, {after:.2f} s after: {after / bare_seconds:.2f}", flush=True)


def main() -> None:
    """Run one subcommand."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    figures = parser.add_subparsers(dest="figure", required=True)

    def figure(measure: Callable[[argparse.Namespace], None]) -> argparse.ArgumentParser:
        return figures.add_parser(measure.__name__, description=measure.__doc__)

    figure(generate_rate).add_argument("--rows", type=int, default=100_000)
    figure(prose).add_argument("--rows", type=int, nargs="+", default=[500, 1000, 2000, 4000, 8000])

    csv = figure(learn_csv)
    csv.add_argument("--rows", type=int, default=400_000)
    csv.add_argument("--rounds", type=int, default=5)

    log = figure(log_append)
    log.add_argument("--bytes", type=int, default=100_000_000, help="bytes appended per measurement")
    log.add_argument("--dir", help="where to write (default: the system's temporary folder)")

    table = figure(tables)
    table.add_argument("--csv")
    table.add_argument("--label", default="survived")

    gone = figure(unlearning)
    gone.add_argument("--rows", type=int, default=1_000_000, help="rows in the log")
    gone.add_argument("--ids", type=int, default=10_000, help="ids that are unlearned")
    gone.add_argument("--events", type=int, default=100, help="events that unlearn them")
    gone.add_argument("--dir", help="where to write (default: the system's temporary folder)")

    options = parser.parse_args()
    globals()[options.figure](options)


if __name__ == "__main__":
    main()
