"""Write rows of files and of public data sets as shards.

Shards are Arrow files of batches, and have a manifest. `convert` reads files once. Only one block
of rows and one batch are in memory at a time. MATLAB files are the exception: they are read as a
whole.

`fetch` downloads public data sets:

- `rcv1`: Reuters RCV1-v2 with 103 topics.
- `news20`: raw word counts of 20 Newsgroups. Training and test rows are in two folders.
- `openml:NAME` or `openml:NAME:VERSION`: a data set of OpenML.

scikit-learn downloads the data sets and checks their checksums. A data set that scikit-learn has
downloaded before is read from scikit-learn's cache. The whole data set is in memory (RCV1 takes
1 GB). Use `convert` for files that do not fit into memory.
"""

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp

from stream_dr.aliases import FileName
from stream_dr.batch.block import Block, Rows
from stream_dr.batch.matrix import as_rows
from stream_dr.batch.targets import class_targets, continuous_targets
from stream_dr.datasets.readers.matrices import split_block
from stream_dr.datasets.readers.rcv1 import read_indicator_matrix
from stream_dr.datasets.sources import Options, open_source
from stream_dr.errors import InvalidParameter, SourceMissing, did_you_mean
from stream_dr.shards.folder import Manifest, WriteProgress, find_leftovers, write_shards

if TYPE_CHECKING:
    from sklearn.utils import Bunch


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
    # Called only for its check: OutputExists is raised now, before the files are opened.
    find_leftovers(output_folder)

    # raw=None would let the first rows decide whether features are numbers. Read None as False, so
    # that all features are numbers unless the caller sets `raw`.
    source = open_source(paths, format, options._replace(raw=bool(options.raw)))
    return write_shards(
        source.blocks(), output_folder, rows_per_shard, rows_per_batch, n_features=options.n_features, progress=progress
    )


NAMES = "rcv1, news20 and openml:NAME"
"""Names of the data sets that can be fetched, as error messages list them."""


class _Advice(NamedTuple):
    """Parts of the error message of a failed download.

    The message says: with the `files` files on disk, run `stream-dr convert FILES` with `options`.

    Attributes
    ----------
    dataset_name : str
        Name of the data set, as the user has given it.
    files : str
        Usual name of the data set's files, such as "20news-bydate".
    options : str
        Options of `stream-dr convert` that read these files.
    """

    dataset_name: str
    files: str
    options: str


class _DatasetPart(NamedTuple):
    """Rows of a data set for one folder of shards.

    Attributes
    ----------
    folder : str
        Name of the folder within the output folder, "" for the output folder itself.
    n_features : int or None
        Number of columns of sparse rows. None for dense rows, which show their number of columns.
    blocks : iterator of Block
        The rows with their targets.
    """

    folder: str
    n_features: int | None
    blocks: Iterator[Block]


def fetch(dataset_name: str, output_folder: FileName, *, progress: WriteProgress | None = None) -> dict[str, Manifest]:
    """Download a public data set and write it as shards.

    Returns a dict from the path of each written folder to the folder's manifest.

    Parameters
    ----------
    dataset_name : str
        "rcv1", "news20", "openml:NAME" or "openml:NAME:VERSION".
    output_folder : path
        Folder for the shards. The rows of news20 go to its folders `train` and `test`.
    progress : callable or None
        Function called after each batch with the number of rows written so far.

    Raises InvalidParameter if the name is unknown, and OutputExists if the folder has files. Raises
    SourceMissing if the download fails. Its message shows the command that converts local files instead.
    """
    manifests = {}
    for part in _download_dataset_parts(dataset_name):
        folder = Path(output_folder) / part.folder
        manifests[str(folder)] = write_shards(part.blocks, folder, n_features=part.n_features, progress=progress)
    return manifests


def _download_dataset_parts(dataset_name: str) -> list[_DatasetPart]:
    """Download a data set.

    Returns one _DatasetPart for each folder of shards to write.
    """
    if dataset_name == "rcv1":
        # If the download fails, the error says how to convert the files after a manual download.
        advice = _Advice(dataset_name, "rcv1", options="--format rcv1 --topics rcv1-v2.topics.qrels")
        bunch = _call_sklearn_fetcher("fetch_rcv1", advice)
        blocks = read_indicator_matrix(bunch.data, bunch.target, bunch.target_names, bunch.sample_id)
        return [_DatasetPart(folder="", n_features=bunch.data.shape[1], blocks=blocks)]

    if dataset_name == "news20":
        return [_fetch_news20(dataset_name, "train"), _fetch_news20(dataset_name, "test")]

    if dataset_name.startswith("openml:"):
        return [_fetch_openml(dataset_name)]

    meant = did_you_mean(dataset_name, ("rcv1", "news20"))
    raise InvalidParameter(f"there is no data set {dataset_name!r} to fetch{meant}; names are {NAMES}.")


def _fetch_news20(dataset_name: str, subset: Literal["train", "test"]) -> _DatasetPart:
    """Fetch rows of 20 Newsgroups, whose labels are names of newsgroups."""
    advice = _Advice(dataset_name, "20news-bydate", options="--format mat or libsvm")
    bunch = _call_sklearn_fetcher("fetch_20newsgroups_vectorized", advice, subset=subset, normalize=False)
    labels = [bunch.target_names[code] for code in bunch.target]
    blocks = _split_into_blocks(bunch.data, labels)
    return _DatasetPart(folder=subset, n_features=bunch.data.shape[1], blocks=blocks)


def _fetch_openml(prefixed_name: str) -> _DatasetPart:
    """Fetch a data set of OpenML.

    prefixed_name: "openml:NAME:VERSION", or "openml:NAME" for the version that OpenML marks as
        active.
    """
    # `version` is a list of at most one number.
    _, title, *version = prefixed_name.split(":")
    if not title or len(version) > 1 or not all(number.isdecimal() for number in version):
        raise InvalidParameter(
            f"{prefixed_name!r} is no name of a data set; it must be openml:NAME or openml:NAME:VERSION."
        )
    number = int(version[0]) if version else "active"
    advice = _Advice(prefixed_name, title, options="--format arff or csv")
    bunch = _call_sklearn_fetcher("fetch_openml", advice, name=title, version=number)

    X, feature_names = as_rows(bunch.data)
    targets = None
    if bunch.target is not None:
        targets = np.asarray(bunch.target)
    # State the number of columns of sparse rows, because blocks may lack the last columns of X.
    n_features = X.shape[1] if sp.issparse(X) else None
    return _DatasetPart(folder="", n_features=n_features, blocks=_split_into_blocks(X, targets, feature_names))


def _split_into_blocks(
    X: Rows, targets: np.ndarray | list[str] | None, feature_names: tuple[str, ...] | None = None
) -> Iterator[Block]:
    """Return an iterator of blocks of rows with their targets.

    targets: one target for each row. An array of floats has numeric targets. Any other array or
        list has labels. None if the rows have no targets.
    feature_names: names of the features, or None.
    """
    # Sparse rows of a Block are CSR.
    if sp.issparse(X):
        X = sp.csr_matrix(X, dtype=np.float64)
    is_continuous = isinstance(targets, np.ndarray) and targets.dtype.kind == "f"
    parse = continuous_targets if is_continuous else class_targets

    y = None
    if targets is not None:
        y = parse(list(targets))
    return split_block(Block(X, y, names=feature_names))


def _call_sklearn_fetcher(fetcher_name: str, advice: _Advice, **arguments: str | int | bool) -> "Bunch":
    """Call a download function of scikit-learn and return its result.

    fetcher_name: name of the function in sklearn.datasets.
    advice: what the error message says if the download fails.
    **arguments: arguments of the function.

    Raises SourceMissing if the download fails. Its message shows the command that converts local
    files instead.
    """
    import sklearn.datasets

    try:
        with warnings.catch_warnings():
            # scikit-learn warns each time it repeats a failed download. Hide these warnings.
            # It repeats the download once, after .2 seconds.
            warnings.simplefilter("ignore")
            return getattr(sklearn.datasets, fetcher_name)(**arguments, n_retries=1, delay=0.2)

    # Failed downloads and timeouts raise subclasses of OSError.
    except (OSError, ValueError) as e:
        message = (
            f"{advice.dataset_name} could not be fetched ({type(e).__name__}: {e}): this needs internet access to where "
            f"scikit-learn downloads it from. With the {advice.files} files on disk: stream-dr convert FILES "
            f"{advice.options} --out DIR."
        )
        raise SourceMissing(message, name=advice.dataset_name) from e
