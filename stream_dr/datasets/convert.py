"""Convert: files to Arrow shards with a manifest, in one pass.

One block and one batch are in memory at a time, whatever the file's size. Only the reader of
MATLAB's format reads whole variables.
"""

from collections.abc import Sequence

from stream_dr.aliases import FileName
from stream_dr.datasets.sources import Options, open_source
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
    """Write the rows of files as shards and return their manifest.

    Parameters
    ----------
    paths : sequence of paths
        Files to read, in this order.
    format : str or None
        Format of all files. None takes it from the first file's name.
    out : path
        Folder for the shards. It must be empty or not exist.
    options : Options
        Options of the reader.
    rows_per_shard, rows_per_batch : int
        Number of rows in a shard, and in a batch of a shard.
    progress : callable or None
        Called with the number of rows so far after each batch.

    Raises OutputExists, InsufficientStorage, and whatever `open_source` and reading raise. If it
    raises, no manifest is written.
    """
    check_empty(out)

    # Features are numbers unless `raw` is set. The first piece of a file does not decide here.
    source = open_source(paths, format, options._replace(raw=bool(options.raw)))
    return write_shards(
        source.blocks(), out, rows_per_shard, rows_per_batch, n_features=options.n_features, progress=progress
    )
