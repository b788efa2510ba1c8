"""convert: files in the field's formats to Arrow shards with a manifest, in one pass, a block at a time.

Each format is a reader in datasets/readers; this file knows which option belongs to which. Memory is one block and one
batch, whatever the file's size (MATLAB's format excepted, see its reader). With `tfidf` the file is read twice: once to
count in how many rows each term occurs, once to write; the frozen weighting lies beside the shards, and `tfidf_from`
applies it to another file, so that held-out rows are weighted by the training rows' frequencies.

Why this way: a shard is what everything else reads, so a format is met once, here, and never again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from stream_dr.block import Block
from stream_dr.datasets.readers.columns import Roles
from stream_dr.datasets.tfidf import DocumentFrequencies, TfIdf, load_tfidf
from stream_dr.disk import FileName
from stream_dr.errors import InvalidParameter, MalformedInput
from stream_dr.shards.manifest import Manifest
from stream_dr.shards.writer import ShardWriter

FORMATS = ("libsvm", "vw", "rcv1", "arff", "mat", "csv", "parquet")

TFIDF = "tfidf.safetensors"
"""Name of the frozen weighting beside the shards."""

Progress = Callable[[int], None]
"""Called after each block with the rows so far."""


class Options(NamedTuple):
    """How a file is to be read; what a format has no use for must be left alone.

    target: libsvm, vw: "auto" or the kind of targets. zero_based, one_based: where columns are numbered from. n_features:
    width to state for sparse rows. topics: rcv1's topics file. labels: arff: MULAN's XML; mat: the labels' variable;
    csv, parquet: indicator columns, separated by commas. label: the class attribute or column. targets, weight, id, drop:
    columns of csv and parquet. features, subset: mat's variables. delimiter, header: csv.
    """

    target: str = "auto"
    zero_based: bool = False
    one_based: bool = False
    n_features: int | None = None
    topics: FileName | None = None
    labels: str | None = None
    label: str | None = None
    targets: str | None = None
    weight: str | None = None
    id: str | None = None
    drop: str | None = None
    features: str | None = None
    subset: str | None = None
    delimiter: str = ","
    header: bool = True


TAKES = {
    "libsvm": ("target", "zero_based", "n_features"),
    "vw": ("target", "one_based", "n_features"),
    "rcv1": ("topics", "n_features"),
    "arff": ("labels", "label"),
    "mat": ("labels", "features", "subset"),
    "csv": ("label", "labels", "targets", "weight", "id", "drop", "delimiter", "header"),
    "parquet": ("label", "labels", "targets", "weight", "id", "drop"),
}
"""Which options a format has a use for."""


def read(paths: Sequence[FileName], format: str, options: Options = Options()) -> Iterator[Block]:
    """Blocks of the files' rows, in order. Raises InvalidParameter (unknown format, an option it has no use for),
    MalformedInput (no row at all) and what the reader raises."""
    if format not in FORMATS:
        raise InvalidParameter(f"there is no format {format!r}; formats are {', '.join(FORMATS)}.")
    for name, value in options._asdict().items():
        if value != Options._field_defaults[name] and name not in TAKES[format]:
            raise InvalidParameter(f"option {name} says nothing about {format} files; leave it out.")
    rows = 0
    for block in _blocks(paths, format, options):
        rows += block.rows
        yield block
    if rows == 0:
        raise MalformedInput(f"{', '.join(map(str, paths))}: no row in it. Give a file that holds rows.")


def _blocks(paths: Sequence[FileName], format: str, options: Options) -> Iterator[Block]:
    if format == "rcv1":
        yield from _rcv1(paths, options)
        return
    for path in paths:
        yield from _READERS[format](path, options)


def convert(
    paths: Sequence[FileName],
    format: str,
    out: FileName,
    options: Options = Options(),
    *,
    rows_per_shard: int = 100_000,
    rows_per_batch: int = 1_000,
    tfidf: bool = False,
    tfidf_from: FileName | None = None,
    progress: Progress | None = None,
) -> Manifest:
    """Write the files' rows as shards into the folder `out`; its manifest.

    tfidf: weight raw counts by frequencies counted in a pass of its own. tfidf_from: by those a file holds. Raises
    OutputExists, InsufficientStorage and what `read` raises; then no manifest is written.
    """
    weighting = None if tfidf_from is None else load_tfidf(tfidf_from)
    if tfidf:
        weighting = count_documents(read(paths, format, options))
    blocks = read(paths, format, options)
    width = options.n_features if weighting is None else max(options.n_features or 0, len(weighting.frequencies))
    manifest = write_shards(
        blocks if weighting is None else map(weighting.apply, blocks),
        out,
        rows_per_shard=rows_per_shard,
        rows_per_batch=rows_per_batch,
        n_features=width,
        progress=progress,
    )
    if weighting is not None:
        weighting.save(Path(out) / TFIDF)
    return manifest


def write_shards(
    blocks: Iterable[Block],
    out: FileName,
    *,
    rows_per_shard: int = 100_000,
    rows_per_batch: int = 1_000,
    n_features: int | None = None,
    progress: Progress | None = None,
) -> Manifest:
    """Write blocks as shards into the folder `out`; its manifest. Raises OutputExists, InsufficientStorage."""
    with ShardWriter(out, rows_per_shard, rows_per_batch, n_features=n_features) as writer:
        for block in blocks:
            writer.write(block)
            if progress is not None:
                progress(writer.rows)
    assert writer.manifest is not None  # written by a clean end
    return writer.manifest


def count_documents(blocks: Iterable[Block]) -> TfIdf:
    """The tf-idf weighting of all blocks' rows."""
    frequencies = DocumentFrequencies()
    for block in blocks:
        frequencies.add(block)
    return frequencies.freeze()


def _libsvm(path: FileName, o: Options) -> Iterator[Block]:
    from stream_dr.datasets.readers.libsvm import read_libsvm

    return read_libsvm(path, target=o.target, zero_based=o.zero_based, n_features=o.n_features)


def _vw(path: FileName, o: Options) -> Iterator[Block]:
    from stream_dr.datasets.readers.vw import read_vw

    return read_vw(path, target=o.target, one_based=o.one_based, n_features=o.n_features)


def _rcv1(paths: Sequence[FileName], o: Options) -> Iterator[Block]:
    from stream_dr.datasets.readers.rcv1 import WIDTH, read_lyrl2004

    if o.topics is None:
        raise InvalidParameter("rcv1 vector files need their topics file (rcv1-v2.topics.qrels); give topics.")
    return read_lyrl2004(paths, o.topics, n_features=o.n_features or WIDTH)


def _arff(path: FileName, o: Options) -> Iterator[Block]:
    from stream_dr.datasets.readers.mulan import read_arff

    return read_arff(path, labels=o.labels, label=o.label)


def _mat(path: FileName, o: Options) -> Iterator[Block]:
    from stream_dr.datasets.readers.matlab import read_matlab

    return read_matlab(path, features=o.features or "fea", labels=o.labels or "gnd", subset=o.subset)


def _csv(path: FileName, o: Options) -> Iterator[Block]:
    from stream_dr.datasets.readers.csv import read_csv

    return read_csv(path, _roles(o), delimiter=o.delimiter, header=o.header)


def _parquet(path: FileName, o: Options) -> Iterator[Block]:
    from stream_dr.datasets.readers.parquet import read_parquet

    return read_parquet(path, _roles(o))


def _roles(o: Options) -> Roles:
    def names(text: str | None) -> tuple[str, ...]:
        return tuple(name.strip() for name in text.split(",")) if text else ()

    return Roles(o.label, names(o.labels), names(o.targets), o.weight, o.id, names(o.drop))


_READERS: dict[str, Callable[[FileName, Options], Iterator[Block]]] = {
    "libsvm": _libsvm,
    "vw": _vw,
    "arff": _arff,
    "mat": _mat,
    "csv": _csv,
    "parquet": _parquet,
}
