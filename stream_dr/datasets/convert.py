"""Convert: files to Arrow shards with a manifest, in one pass.

A block is read at a time. Memory: one block and one batch, whatever the file's size. Only the
reader of MATLAB's format reads whole variables.
"""

from collections.abc import Sequence

from stream_dr.datasets.sources import Options, open_source
from stream_dr.disk import FileName
from stream_dr.shards.manifest import Manifest
from stream_dr.shards.writer import WriteProgress, check_empty, write_shards


def convert(
    paths: Sequence[FileName],
    format: str | None,
    out: FileName,
    options: Options = Options(),
    *,
    rows_per_shard: int = 100_000,
    rows_per_batch: int = 1_000,
    progress: WriteProgress | None = None,
) -> Manifest:
    """Write the rows of files as shards into the folder `out`, and return its manifest.

    Raises OutputExists, InsufficientStorage and what `open_source` and reading raise. No manifest is written then.
    """
    check_empty(out)
    source = open_source(paths, format, options._replace(raw=bool(options.raw)))
    return write_shards(
        source.blocks(), out, rows_per_shard, rows_per_batch, n_features=options.n_features, progress=progress
    )
