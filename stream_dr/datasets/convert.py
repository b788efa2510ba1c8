"""Convert: write the rows of files as Arrow shards with a manifest.

The files are read once. One block of rows and one batch are in memory at a time, whatever the size
of a file. An exception is MATLAB's format, whose reader reads whole variables.
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
        Function called after each batch with the number of rows written so far.

    Raises OutputExists, InsufficientStorage, and the errors of `open_source` and of reading. After
    an error there is no manifest.
    """
    check_empty(out)

    # Features are read as numbers unless `raw` is True. The first rows of the file do not decide.
    source = open_source(paths, format, options._replace(raw=bool(options.raw)))
    return write_shards(
        source.blocks(), out, rows_per_shard, rows_per_batch, n_features=options.n_features, progress=progress
    )
