"""Batches for the engine's tests: small Blocks of every layout, their bytes, and directories to put them in."""

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from stream_dr.batch.arrow import arrow_from_block, write_arrow
from stream_dr.batch.block import Block
from stream_dr.batch.targets import class_targets, multilabel_targets
from stream_dr.directory.directory import Directory
from stream_dr.directory.draft import Draft, Receipt, rows_draft
from stream_dr.models.limits import Limits
from stream_dr.shards.dataset import ShardWriter

SMALL = Limits(min_free_bytes=0)


def dense(seed: int, rows: int = 20, features: int = 4, **changes: Any) -> Block:
    """Three Gaussian classes a, b, c."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, rows)
    X = rng.normal(size=(rows, features)) + y[:, None] * np.arange(features)
    return Block(X, class_targets(["abc"[i] for i in y]))._replace(**changes)


def sparse(seed: int, rows: int = 20, features: int = 50, stated: bool = False) -> Block:
    """Sparse rows with several labels a row."""
    rng = np.random.default_rng(seed)
    X = sp.random(rows, features, 0.1, format="csr", random_state=rng)
    X.sort_indices()
    labels = [[f"l{i}" for i in np.flatnonzero(rng.random(4) < 0.4)] for _ in range(rows)]
    return Block(X, multilabel_targets(labels), width_stated=stated)


def body(block: Block) -> bytes:
    """The block as an Arrow stream."""
    return bytes(write_arrow([arrow_from_block(block)]))


def draft(block: Block, key: str | None = None) -> Draft:
    """The block as a draft."""
    return rows_draft(body(block), "arrow", key)


def opened(path: Path, **models: tuple[str, dict[str, Any]]) -> Directory:
    """A writable directory with these models."""
    directory = Directory(path, limits=SMALL)
    for name, (key, params) in models.items():
        directory.add_model(name, key, params)
    return directory


def put(directory: Directory, *blocks: Block) -> list[int]:
    """Append blocks; their positions."""
    answers = directory.append([draft(block) for block in blocks])
    for answer in answers:
        if not isinstance(answer, Receipt):
            raise answer
    return [answer.position for answer in answers if isinstance(answer, Receipt)]


def shards(
    folder: Path, blocks: int = 12, rows: int = 20, sparse_rows: bool = False, batches_per_shard: int = 2
) -> Path:
    """Write shards of `blocks` batches."""
    with ShardWriter(folder, rows_per_shard=batches_per_shard * rows, rows_per_batch=rows) as writer:
        for seed in range(blocks):
            writer.write(sparse(seed, rows) if sparse_rows else dense(seed, rows))
    return folder
