"""Compare ways to use vectors that an older release has projected: `python -m benchmarks.steady`.

    STREAM_DR_DATA=… python -m benchmarks.steady [--only NAME …] [--quick] [--markdown] [--pictures FOLDER]

Each data set is learned in ten parts by five methods, each with and without the steady basis. After
each part the model is published and released. The stored rows are of all classes, and are never
learned, so that no vector knows its label. Further rows, which are not learned either, are
projected by the newest release, and ask for their ten nearest stored vectors by the cosine. The
stored vectors are

- as stored: projected by an older release of the model without a steady basis,
- steady: as stored, of the model with a steady basis,
- moved: those without a steady basis, moved by `stream_dr.change(old, newest, estimator)`,
- anew: the rows are projected again, by the newest release.

There are three kinds of streams:

- same: rows in random order,
- drift: the same, and each part is turned by 4 degrees more than the part before, in random planes
  that together cover all features. The stored rows are turned as the first part is, and the rows
  that ask as the last part is,
- new classes: rows of the second half of the classes come only in the last five parts.

Printed for the first release are the residual of `change`, the share of the ten nearest that have the
label of the row that asks (same-label@10), and the share of the ten nearest anew that are found
(recall@10, in columns that begin with r.). A second table has all older releases by their residual:
the mean and the worst loss of same-label@10 against projecting anew, and the mean recall. Projecting
anew pays from the residual at which the mean loss of steady or moved vectors is above 0.01. Data sets
that are not available here are skipped.
"""

import argparse
import tempfile
import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.preprocessing import normalize
from threadpoolctl import threadpool_limits

import stream_dr
from benchmarks.papers import drawing, sets
from stream_dr.batch.arrow import arrow_from_block, write_arrow
from stream_dr.batch.block import Block
from stream_dr.batch.targets import class_targets
from stream_dr.running.advance import backfill

RELEASES = 10
"""Number of releases."""

DEGREES = 4.0
"""Angle by which each part drifts from the part before."""

NEAREST = 10
"""Number of neighbours."""

MOST_ASKING = 1_500
"""Largest number of rows that ask for neighbours."""

BOUNDS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 1.01)
"""Bounds of the residuals in the second table."""

BAR = 0.01
"""Mean loss of same-label@10 from which projecting anew pays."""


class Rows(NamedTuple):
    """Rows X (n, features) with their labels y (n,)."""

    X: np.ndarray
    y: np.ndarray

    def take(self, index: np.ndarray) -> "Rows":
        """Return the rows with these indices."""
        return Rows(self.X[index], self.y[index])


class Stream(NamedTuple):
    """Parts of a stream in their order, the stored rows, and the rows that ask for neighbours."""

    parts: list[Rows]
    stored: Rows
    asking: Rows


class Split(NamedTuple):
    """Rows of a data set: those to learn, those to store, and those that ask for neighbours."""

    train: Rows
    stored: Rows
    asking: Rows


class Found(NamedTuple):
    """Figures of one way to use stored vectors.

    same: share of the nearest that have the label of the row that asks.
    recall: share of the nearest anew that are among the nearest.
    """

    same: float
    recall: float


class Result(NamedTuple):
    """Figures of the vectors of one older release.

    release: number of the release, from 1.
    residual: residual of `stream_dr.change` to the newest release.
    """

    data: str
    method: str
    kind: str
    release: int
    residual: float
    stored: Found
    steady: Found
    moved: Found
    anew: Found


def methods(classes: int) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the key and the parameters of each method, for a number of classes."""
    p = classes - 1
    return {
        "LDA": ("lda", {"n_components": p, "shrinkage": 0.1}),
        "PLSDA": ("plsda", {"n_components": p}),
        "SKM": ("skm", {"n_components": p}),
        "IncrementalSKM": ("iskm", {"n_components": p}),
        "PCA": ("pca", {"n_components": 32}),
    }


def split_rows(name: str, n_train: int, n_stored: int) -> Callable[[], Split]:
    """Return a function that splits a data set at random."""

    def read() -> Split:
        rows = Rows(*sets.load(name))
        order = np.random.default_rng(0).permutation(len(rows.y))
        train, stored, asking = np.split(order, [n_train, n_train + n_stored])
        return Split(rows.take(train), rows.take(stored), rows.take(asking[:MOST_ASKING]))

    return read


def news20_rows() -> Split:
    """Return news20 as 384 numbers a row: tf-idf, reduced by LSI of the rows to learn, of unit length."""
    (X, y), (T, truth) = sets.news20_parts()
    lsi = TruncatedSVD(384, random_state=0).fit(X)
    test = Rows(normalize(lsi.transform(T)), truth)
    stored, asking, _ = np.split(np.random.default_rng(0).permutation(len(truth)), [4_000, 4_000 + MOST_ASKING])
    return Split(Rows(normalize(lsi.transform(X)), y), test.take(stored), test.take(asking))


SETS: dict[str, tuple[str, Callable[[], Split]]] = {
    "news20, 384 numbers": ("news20", news20_rows),
    "MNIST test set": ("MNIST test set", split_rows("MNIST test set", 6_000, 2_500)),
    "USPS": ("USPS", split_rows("USPS", 5_500, 2_500)),
    "digits": ("digits", split_rows("digits", 1_000, 500)),
}
"""Name in `benchmarks.papers.sets`, and function that returns the rows."""


def same(rows: Split) -> Stream:
    """Return a stream of rows in random order."""
    order = np.random.default_rng(1).permutation(len(rows.train.y))
    return Stream([rows.train.take(part) for part in np.array_split(order, RELEASES)], rows.stored, rows.asking)


def drift(rows: Split) -> Stream:
    """Return a stream whose rows are turned further in each part."""
    d = rows.train.X.shape[1]
    planes = np.linalg.qr(np.random.default_rng(2).normal(size=(d, d)))[0]
    first = planes[:, : d // 2]
    second = planes[:, d // 2 : d // 2 * 2]

    def turned(part: Rows, angle: float) -> Rows:
        a = part.X @ first
        b = part.X @ second
        cosine = np.cos(angle) - 1.0
        sine = np.sin(angle)
        change = (a * cosine - b * sine) @ first.T + (a * sine + b * cosine) @ second.T
        return Rows(part.X + change, part.y)

    angles = np.radians(DEGREES) * np.arange(RELEASES)
    parts = [turned(part, angle) for part, angle in zip(same(rows).parts, angles, strict=True)]
    return Stream(parts, rows.stored, turned(rows.asking, angles[-1]))


def new_classes(rows: Split) -> Stream:
    """Return a stream in whose second half the second half of the classes comes in."""
    train = rows.train
    rng = np.random.default_rng(3)
    labels = np.unique(train.y)
    is_old = np.isin(train.y, labels[: len(labels) // 2])
    old = np.array_split(rng.permutation(np.flatnonzero(is_old)), RELEASES)
    new = np.array_split(rng.permutation(np.flatnonzero(~is_old)), RELEASES // 2)

    parts = old[: RELEASES // 2]
    for some, others in zip(old[RELEASES // 2 :], new, strict=True):
        parts.append(rng.permutation(np.concatenate([some, others])))
    return Stream([train.take(part) for part in parts], rows.stored, rows.asking)


KINDS = {"same": same, "drift": drift, "new classes": new_classes}


def release_all(directory: stream_dr.Directory, parts: list[Rows]) -> None:
    """Learn each part, then publish and release all models of a directory."""
    models = list(directory.models.values())
    for number, part in enumerate(parts, 1):
        block = Block(part.X, class_targets([str(label) for label in part.y]))
        directory.append_all([stream_dr.rows_draft(bytes(write_arrow([arrow_from_block(block)])))])
        backfill(directory, models, directory.position)
        for model in models:
            model.publish(model.freeze())
            directory.releases.create(model, str(number))


def projections(directory: stream_dr.Directory, name: str) -> list[Any]:
    """Return the projections of a model's releases, oldest first."""
    model = directory.model(name)
    return [directory.releases.read(model, str(t + 1)).published.projection for t in range(RELEASES)]


def nearest(stored: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Return the indices (queries, NEAREST) of the nearest stored vectors.

    Components that only one of the two has are 0 in the other.
    """
    shared = min(stored.shape[1], asked.shape[1])
    cosines = normalize(asked)[:, :shared] @ normalize(stored)[:, :shared].T
    return np.argpartition(-cosines, NEAREST - 1, axis=1)[:, :NEAREST]


def compare(directory: stream_dr.Directory, name: str, stream: Stream) -> list[tuple[int, float, list[Found]]]:
    """Return the number, the residual and the figures (see Result) of each older release."""
    rows = stream.stored
    plain = projections(directory, name)
    steady = projections(directory, f"{name}-steady")
    estimator: Any = stream_dr.load(stream_dr.export_model(directory.model(name)))
    asked = plain[-1].apply(stream.asking.X)
    asked_steady = steady[-1].apply(stream.asking.X)
    truth = nearest(plain[-1].apply(rows.X), asked)

    def figures(places: np.ndarray) -> Found:
        is_same = rows.y[places] == stream.asking.y[:, None]
        is_found = (places[:, :, None] == truth[:, None, :]).any(axis=2)
        return Found(float(is_same.mean()), float(is_found.mean()))

    found = []
    for number, (old, old_steady) in enumerate(zip(plain[:-1], steady[:-1], strict=True), 1):
        stored = old.apply(rows.X)
        change = stream_dr.change(old, plain[-1], estimator)
        assert change is not None
        ways = [
            nearest(stored, asked),
            nearest(old_steady.apply(rows.X), asked_steady),
            nearest(stored @ change.map + change.offset, asked),
            truth,
        ]
        found.append((number, change.residual, [figures(places) for places in ways]))
    return found


def measure(data: str, only_methods: tuple[str, ...] | None = None) -> list[Result]:
    """Return the results of a data set, for all kinds of streams and all methods."""
    rows = SETS[data][1]()
    results = []
    for kind, make in KINDS.items():
        stream = make(rows)
        with (
            tempfile.TemporaryDirectory() as folder,
            stream_dr.Directory(folder, limits=stream_dr.Limits(min_free_bytes=0)) as directory,
        ):
            chosen = methods(len(np.unique(rows.train.y)))
            chosen = {name: spec for name, spec in chosen.items() if only_methods is None or name in only_methods}
            for name, (key, parameters) in chosen.items():
                directory.add_model(name, key, parameters)
                directory.add_model(f"{name}-steady", key, parameters, basis="steady")
            release_all(directory, stream.parts)
            for name in chosen:
                for number, residual, ways in compare(directory, name, stream):
                    results.append(Result(data, name, kind, number, residual, *ways))
    return results


WAYS = ("stored", "steady", "moved", "anew")
"""Names of the figures of a Result, in the order of the table."""


def line(cells: list[str], markdown: bool) -> str:
    """Return a line of a table."""
    if markdown:
        return "| " + " | ".join(cells) + " |"
    return f"{cells[0]:<34}" + "".join(f"{cell:>12}" for cell in cells[1:])


def print_first(results: list[Result], markdown: bool) -> None:
    """Print the figures of the vectors of the first release."""
    for result in results:
        if result.release != 1:
            continue
        same_label = [f"{getattr(result, way).same:.3f}" for way in WAYS]
        recall = [f"{getattr(result, way).recall:.3f}" for way in WAYS[:-1]]
        name = [f"{result.kind}, {result.method}"]
        print(line([*name, f"{result.residual:.2f}", *same_label, *recall], markdown), flush=True)


def print_losses(results: list[Result], markdown: bool) -> None:
    """Print how much is lost against projecting anew, and from which residual it is more than BAR."""
    head = ["residual", "pairs", *(f"{what}{way}" for what in ("", "worst ", "r. ") for way in WAYS[:-1])]
    print("\nLoss of same-label@10 against projecting anew, and recall")
    print(line(head, markdown))
    if markdown:
        print("|---" * len(head) + "|")

    least = None
    for low, high in pairwise(BOUNDS):
        within = [result for result in results if low <= result.residual < high]
        if not within:
            continue
        losses = np.array([[r.anew.same - getattr(r, way).same for way in WAYS[:-1]] for r in within])
        recall = np.array([[getattr(r, way).recall for way in WAYS[:-1]] for r in within])
        mean = losses.mean(axis=0)
        cells = [f"{value:.3f}" for value in (*mean, *losses.max(axis=0), *recall.mean(axis=0))]
        print(line([f"{low:g} to {min(high, 1.0):g}", str(len(within)), *cells], markdown))
        if least is None and mean[1:].max() > BAR:
            least = low
    if least is not None:
        print(
            f"\nProject anew from a residual of {least:g}: steady or moved vectors then lose more than {BAR} on average."
        )


def draw_releases(folder: str) -> None:
    """Draw the same rows of digits at the first and at the newest release, with and without the steady basis."""
    stream = same(SETS["digits"][1]())
    rows = stream.stored.take(np.flatnonzero(stream.stored.y < 5))
    picture, axes = drawing.figure(2, 2, width=3.6, height=2.9)
    with (
        tempfile.TemporaryDirectory() as path,
        stream_dr.Directory(path, limits=stream_dr.Limits(min_free_bytes=0)) as directory,
    ):
        directory.add_model("plain", "lda", {"n_components": 9, "shrinkage": 0.1})
        directory.add_model("steady", "lda", {"n_components": 9, "shrinkage": 0.1}, basis="steady")
        release_all(directory, stream.parts)
        for line_of_axes, name, title in zip(axes, ("plain", "steady"), ("without", "with"), strict=True):
            released = projections(directory, name)
            for place, number in zip(line_of_axes, (1, RELEASES), strict=True):
                Z = released[number - 1].apply(rows.X)
                for label in np.unique(rows.y):
                    place.scatter(*Z[rows.y == label, :2].T, s=14, label=str(label))
                place.set_title(f"release {number}, {title} the steady basis", fontsize=10)
                place.axis("equal")
    axes[0, 0].legend(fontsize=8, loc="lower right")
    drawing.save(picture, folder, "vectors-that-stay")


def main(arguments: list[str] | None = None) -> None:
    """Print the tables, and draw the picture if a folder is given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=SETS, default=list(SETS), metavar="NAME", help="data sets")
    parser.add_argument("--quick", action="store_true", help="digits, LDA and PCA alone")
    parser.add_argument("--markdown", action="store_true", help="print the tables for a page")
    parser.add_argument("--pictures", metavar="FOLDER", help="draw vectors-that-stay.png there, too")
    given = parser.parse_args(arguments)

    head = ["stream", "residual", *WAYS, *(f"r. {way}" for way in WAYS[:-1])]
    results = []
    with warnings.catch_warnings(), threadpool_limits(1):
        # Methods have fewer components while there are fewer classes.
        warnings.simplefilter("ignore", stream_dr.errors.FewerComponents)
        for data in ["digits"] if given.quick else given.only:
            if not sets.available(SETS[data][0]):
                print(f"{data}: skipped, because STREAM_DR_DATA names no folder with this data set")
                continue
            print(f"\n{data}\n{line(head, given.markdown)}")
            if given.markdown:
                print("|---" * len(head) + "|")
            measured = measure(data, ("LDA", "PCA") if given.quick else None)
            print_first(measured, given.markdown)
            results += measured
        print_losses(results, given.markdown)
        if given.pictures:
            draw_releases(given.pictures)


if __name__ == "__main__":
    main()
