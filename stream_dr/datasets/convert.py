"""Convert: write rows of files as shards with a manifest.

Shards are Arrow files of batches. The files are read once. Only one block of rows and one batch
are in memory at a time. MATLAB files are the exception: they are read as a whole.
"""

from collections.abc import Sequence

from stream_dr.aliases import FileName
from stream_dr.datasets.sources import Options, open_source
from stream_dr.shards.manifest import Manifest
from stream_dr.shards.writer import WriteProgress, leftovers_or_raise_if_shards, write_shards


def convert(
    paths: Sequence[FileName],
    format: str | None,
    output_folder: FileName,
    options: Options = Options(),
    *,
    rows_per_shard: int = 100_000,
    rows_per_batch: int = 1_000,
    progress: WriteProgress | None = None,
) -> Manifest:
    """Write the rows of files as shards.

    Returns the manifest of the shards.

    Parameters
    ----------
    paths : sequence of paths
        Files to read, in this order.
    format : str or None
        Format of all files. None: the suffix of the first file's name decides.
    output_folder : path
        Folder for the shards. It must be empty or not exist.
    options : Options
        Options of the reader.
    rows_per_shard : int
        Number of rows in a shard.
    rows_per_batch : int
        Number of rows in a batch of a shard.
    progress : callable or None
        Function called after each batch with the number of rows written so far.

    Raises OutputExists, InsufficientStorage, and the errors of `open_source` and of reading. If an
    error is raised, no manifest is written.
    """
    leftovers_or_raise_if_shards(output_folder)

    # Let all features be numbers unless the caller sets `raw`. The first rows do not decide.
    source = open_source(paths, format, options._replace(raw=bool(options.raw)))
    return write_shards(
        source.blocks(), output_folder, rows_per_shard, rows_per_batch, n_features=options.n_features, progress=progress
    )
