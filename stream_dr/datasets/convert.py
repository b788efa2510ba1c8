"""convert: files in the field's formats to Arrow shards with a manifest, in one pass, a block at a time.

Memory is one block and one
batch, whatever the file's size (MATLAB's format excepted, see its reader). With `tfidf` the file is read twice: once to
count in how many rows each term occurs, once to write; the frozen weighting lies beside the shards, and `tfidf_from`
applies it to another file, so that held-out rows are weighted by the training rows' frequencies.

Why this way: a shard is what everything else reads, so a format is met once, here, and never again.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from stream_dr.datasets.sources import Options, open_source
from stream_dr.datasets.tfidf import DocumentFrequencies, TfIdf, load_tfidf
from stream_dr.disk import FileName
from stream_dr.errors import InvalidParameter
from stream_dr.rows.block import Block
from stream_dr.shards.manifest import Manifest
from stream_dr.shards.writer import WriteProgress, check_empty, write_shards

TFIDF = "tfidf.safetensors"
"""Name of the frozen weighting beside the shards."""


def convert(
    paths: Sequence[FileName],
    format: str | None,
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
    OutputExists, InsufficientStorage and what `open_source` and reading raise; then no manifest is written.
    """
    if tfidf and tfidf_from is not None:
        raise InvalidParameter("weights are counted from the files (tfidf) or those of another (tfidf_from); give one.")
    check_empty(out)
    source = open_source(paths, format, options._replace(raw=bool(options.raw)))
    weighting = None if tfidf_from is None else load_tfidf(tfidf_from)
    if tfidf:
        weighting = count_documents(source.blocks())
    blocks = source.blocks()
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
