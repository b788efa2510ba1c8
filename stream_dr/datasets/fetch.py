"""Fetch: public data sets to shards, through scikit-learn's fetchers.

- `rcv1`: Reuters RCV1-v2, 103 topics
- `news20`: raw word counts of 20 Newsgroups, with training and test rows in folders of their own
- `openml:NAME` or `openml:NAME:VERSION`

A set that scikit-learn has fetched before is taken from its cache. scikit-learn returns a whole
set, so all of it is in memory (RCV1: 1 GB). Use `convert` for files that do not fit.

Why this way: the fetchers know addresses, checksums and caches, so only the conversion is ours.
"""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from stream_dr.datasets.readers.lines import BLOCK_ROWS
from stream_dr.datasets.readers.rcv1 import read_indicator
from stream_dr.disk import FileName
from stream_dr.errors import InvalidParameter, SourceMissing, did_you_mean
from stream_dr.rows.block import Block
from stream_dr.rows.number_rows import as_rows
from stream_dr.shards.manifest import Manifest
from stream_dr.shards.writer import WriteProgress, write_shards
from stream_dr.targets.targets import class_targets, continuous_targets

NAMES = "rcv1, news20 and openml:NAME"


def fetch(name: str, out: FileName, *, progress: WriteProgress | None = None) -> dict[str, Manifest]:
    """Fetch a data set and write it as shards into the folder `out` (news20: `out/train` and `out/test`).

    Returns the manifests by folder. Raises SourceMissing where it cannot be fetched, saying how to convert local files,
    InvalidParameter for an unknown name, OutputExists.
    """
    parts = _parts(name)
    return {
        str(Path(out) / folder): write_shards(blocks, Path(out) / folder, n_features=width, progress=progress)
        for folder, width, blocks in parts
    }


def _parts(name: str) -> list[tuple[str, int | None, Iterator[Block]]]:
    """(folder, width of sparse rows, blocks) of each part of a set."""
    if name == "rcv1":
        bunch = _ask(name, "rcv1", "--format rcv1 --topics rcv1-v2.topics.qrels", "fetch_rcv1")
        return [
            ("", bunch.data.shape[1], read_indicator(bunch.data, bunch.target, bunch.target_names, bunch.sample_id))
        ]
    if name == "news20":
        how = "fetch_20newsgroups_vectorized"
        parts = []
        for part in ("train", "test"):
            bunch = _ask(name, "20news-bydate", "--format mat or libsvm", how, subset=part, normalize=False)
            labels = [bunch.target_names[t] for t in bunch.target]
            parts.append((part, bunch.data.shape[1], _rows(bunch.data, labels)))
        return parts
    if name.startswith("openml:"):
        return [_openml(name)]
    raise InvalidParameter(
        f"there is no data set {name!r} to fetch{did_you_mean(name, ('rcv1', 'news20'))}; names are {NAMES}."
    )


def _openml(name: str) -> tuple[str, int | None, Iterator[Block]]:
    _, title, *version = name.split(":")
    wanted = int(version[0]) if version else "active"
    bunch = _ask(name, title, "--format arff or csv", "fetch_openml", name=title, version=wanted)
    X, names = as_rows(bunch.data)
    targets = None if bunch.target is None else np.asarray(bunch.target)
    return "", X.shape[1] if sp.issparse(X) else None, _rows(X, targets, names)


def _rows(X: Any, targets: Any, names: tuple[str, ...] | None = None) -> Iterator[Block]:
    """Blocks of rows with one label, or one number, a row."""
    X = sp.csr_matrix(X, dtype=np.float64) if sp.issparse(X) else X
    parse: Any = class_targets
    if isinstance(targets, np.ndarray) and targets.dtype.kind == "f":
        parse = continuous_targets
    for at in range(0, X.shape[0], BLOCK_ROWS):
        part = None if targets is None else parse(list(targets[at : at + BLOCK_ROWS]))
        yield Block(X[at : at + BLOCK_ROWS], part, names=names)


def _ask(what: str, files: str, format: str, fetcher: str, /, **how: Any) -> Any:
    """Return what a fetcher of scikit-learn returns.

    Raises SourceMissing if it cannot reach its server.
    """
    import sklearn.datasets

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "Retry downloading from url": the error below says more
            return getattr(sklearn.datasets, fetcher)(**how, n_retries=1, delay=0.2)
    except (OSError, ValueError) as e:  # URLError, HTTPError and timeouts are OSErrors
        raise SourceMissing(
            f"{what} could not be fetched ({type(e).__name__}: {e}): this needs internet access to where scikit-learn "
            f"downloads it from. With the {files} files on disk: stream-dr convert FILES {format} --out DIR.",
            name=what,
        ) from e
