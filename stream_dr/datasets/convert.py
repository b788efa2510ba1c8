"""convert: files in the field's formats to Arrow shards with a manifest, in one pass, a block at a time.

Each format is a reader in datasets/readers; this file knows which option belongs to which. Memory is one block and one
batch, whatever the file's size (MATLAB's format excepted, see its reader). With `tfidf` the file is read twice: once to
count in how many rows each term occurs, once to write; the frozen weighting lies beside the shards, and `tfidf_from`
applies it to another file, so that held-out rows are weighted by the training rows' frequencies.

Why this way: a shard is what everything else reads, so a format is met once, here, and never again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from stream_dr.block import Block
from stream_dr.datasets.readers.columns import Roles
from stream_dr.datasets.readers.csv import read_csv
from stream_dr.datasets.readers.libsvm import read_libsvm
from stream_dr.datasets.readers.matlab import read_matlab
from stream_dr.datasets.readers.mulan import read_arff
from stream_dr.datasets.readers.parquet import read_parquet
from stream_dr.datasets.readers.rcv1 import read_lyrl2004
from stream_dr.datasets.readers.vw import read_vw
from stream_dr.datasets.tfidf import DocumentFrequencies, TfIdf, load_tfidf
from stream_dr.disk import FileName
from stream_dr.errors import InvalidParameter, MalformedInput
from stream_dr.shards.manifest import Manifest
from stream_dr.shards.writer import WriteProgress, write_shards

TFIDF = "tfidf.safetensors"
"""Name of the frozen weighting beside the shards."""


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


_COLUMNS = ("label", "labels", "targets", "weight", "id", "drop")
_FORMATS: dict[str, tuple[Callable[..., Iterator[Block]], tuple[str, ...]]] = {
    "libsvm": (read_libsvm, ("target", "zero_based", "n_features")),
    "vw": (read_vw, ("target", "one_based", "n_features")),
    "rcv1": (read_lyrl2004, ("topics", "n_features")),
    "arff": (read_arff, ("labels", "label")),
    "mat": (read_matlab, ("labels", "features", "subset")),
    "csv": (read_csv, (*_COLUMNS, "delimiter", "header")),
    "parquet": (read_parquet, _COLUMNS),
}
"""The reader of each format, and which options it has a use for."""
FORMATS = tuple(_FORMATS)


def read(paths: Sequence[FileName], format: str, options: Options = Options()) -> Iterator[Block]:
    """Blocks of the files' rows, in order. Raises InvalidParameter (unknown format, an option it has no use for),
    MalformedInput (no row at all) and what the reader raises."""
    rows = 0
    for block in _blocks(paths, format, options):
        rows += block.rows
        yield block
    if rows == 0:
        raise MalformedInput(f"{', '.join(map(str, paths))}: no row in it. Give a file that holds rows.")


def _blocks(paths: Sequence[FileName], format: str, options: Options) -> Iterator[Block]:
    if format not in FORMATS:
        raise InvalidParameter(f"there is no format {format!r}; formats are {', '.join(FORMATS)}.")
    reader, takes = _FORMATS[format]
    given = {name: value for name, value in options._asdict().items() if value != Options._field_defaults[name]}
    for name in given:
        if name not in takes:
            raise InvalidParameter(f"option {name} says nothing about {format} files; leave it out.")
    if format == "rcv1":
        if options.topics is None:
            raise InvalidParameter("rcv1 vector files need their topics file (rcv1-v2.topics.qrels); give topics.")
        return reader(paths, **given)
    if format in ("csv", "parquet"):
        given = {name: value for name, value in given.items() if name not in _COLUMNS} | {"roles": _roles(options)}
    return chain.from_iterable(reader(path, **given) for path in paths)


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
    progress: WriteProgress | None = None,
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
        rows_per_shard,
        rows_per_batch,
        n_features=width,
        progress=progress,
    )
    if weighting is not None:
        weighting.save(Path(out) / TFIDF)
    return manifest


def count_documents(blocks: Iterable[Block]) -> TfIdf:
    """The tf-idf weighting of all blocks' rows."""
    frequencies = DocumentFrequencies()
    for block in blocks:
        frequencies.add(block)
    return frequencies.freeze()


def _roles(options: Options) -> Roles:
    def names(text: str | None) -> tuple[str, ...]:
        return tuple(name.strip() for name in text.split(",")) if text else ()

    o = options
    return Roles(o.label, names(o.labels), names(o.targets), o.weight, o.id, names(o.drop))
