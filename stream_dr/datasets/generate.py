"""generate: rows shaped like RCV1-v2, as many as wanted, the same ones from one seed.

804,414 documents of RCV1 have 47,236 terms, 76 nonzeros a row on average, unit-norm log-tf-idf weights, Zipf term
frequencies and 103 topics in a tree, the top ones on 47.4 % (CCAT), 29.7 % (GCAT), 25.5 % (MCAT) and 14.9 % (ECAT) of the
rows. The generator keeps those statistics and the topics' names and tree; the text is made up. Results on its rows are
results on generated rows, never RCV1 results.

How: a row has one top topic, sometimes a second, and under each one or two further topics with all their ancestors. Its
words are drawn one by one, most from a Zipf distribution over the vocabulary, the others from the row's topics' own words.
Equal words are counted, weighed (1 + log count) · idf, and the row is scaled to length 1.

Cost: O(words) a row (`python benchmarks/generate_rate.py`), 950 bytes a row written; memory of a few MB.

Why this way: every 1,000 rows are drawn from a random generator of their own, keyed by (seed, number of the thousand), so
neither the number of rows asked for nor the size of the shards changes a row. Drawing from a table that repeats each word
in proportion to its frequency costs one lookup where a search of the cumulative frequencies costs sixteen.
"""

import os
from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp

from stream_dr.datasets import language
from stream_dr.errors import InvalidParameter
from stream_dr.rows.block import Block
from stream_dr.shards.manifest import Manifest
from stream_dr.shards.writer import WriteProgress, write_shards
from stream_dr.targets.label_codes import by_appearance, distinct_within
from stream_dr.targets.targets import Targets

_CHUNK = 1_000
"""Rows drawn from one generator."""

_SPREAD = 0.55
_SECOND_TOPIC = 0.27


def rcv1_like(rows: int, targets: str = "topics", seed: int = 0, start: int = 0) -> Iterator[Block]:
    """Yield blocks of at most 1,000 made-up rows, (rows, 47,236) CSR float64.

    They are rows `start` … `start + rows − 1` of the seed's stream.

    targets: "topics" (multilabel, 103 labels) or "top4" (class, the row's first top topic). start:
    a multiple of 1,000.

    Raises InvalidParameter.
    """
    if targets not in ("top4", "topics"):
        raise InvalidParameter(f"targets={targets!r}; it must be top4 or topics.")
    if rows < 0 or seed < 0 or start < 0 or start % _CHUNK:
        raise InvalidParameter(
            f"rows={rows}, seed={seed}, start={start}; none may be negative, start a multiple of {_CHUNK}."
        )
    for first in range(start, start + rows, _CHUNK):
        block = _chunk(seed, first // _CHUNK, targets)
        remaining = start + rows - first
        yield block if remaining >= _CHUNK else block._replace(X=block.X[:remaining], y=_first_rows(block.y, remaining))


def write_rcv1_like(
    directory: str | os.PathLike[str],
    rows: int = language.ROWS,
    targets: str = "topics",
    seed: int = 0,
    rows_per_shard: int = 100_000,
    progress: WriteProgress | None = None,
) -> Manifest:
    """Write `rcv1_like` rows as shards of 1,000-row batches, with a manifest.

    progress: called with the number of rows so far after each batch.
    """
    blocks = rcv1_like(rows, targets, seed)
    return write_shards(blocks, directory, rows_per_shard, _CHUNK, n_features=language.WIDTH, progress=progress)


def _chunk(seed: int, number: int, targets: str) -> Block:
    """1,000 rows."""
    words = language.the_language()
    random = np.random.Generator(np.random.SFC64((seed, number)))
    top, codes, indptr = _draw_topics(random, words)
    X = _draw_rows(random, words, codes, indptr)
    if targets == "top4":
        return Block(X, _in_order_met(Targets("class", tuple(language.TOP_SHARES), top.astype(np.int32))))
    return Block(X, _in_order_met(Targets("multilabel", language.TOPICS, codes, indptr)))


def _draw_topics(random: np.random.Generator, words: language.Language) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each row's first top topic (rows,), and its topics as codes with boundaries, ascending within a row."""
    both = np.searchsorted(words.pairs, random.random(_CHUNK) * words.pairs[-1], side="right")
    top, second = np.divmod(both, len(language.TOP_SHARES))
    has_second = np.flatnonzero(top != second)
    row = np.concatenate([np.arange(_CHUNK), has_second])
    under = np.concatenate([top, second[has_second]])
    again = np.flatnonzero(random.random(len(row)) < _SECOND_TOPIC)
    row, under = np.concatenate([row, row[again]]), np.concatenate([under, under[again]])
    topic = (words.under[under] <= random.random(len(row))[:, None]).sum(axis=1)
    keys = row[:, None] * len(language.TOPICS) + words.ancestors[topic]
    keys = np.unique(keys[words.ancestors[topic] >= 0])
    rows, codes = np.divmod(keys, len(language.TOPICS))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=_CHUNK))]).astype(np.int64)
    return top, codes.astype(np.int32), indptr


def _draw_rows(
    random: np.random.Generator, words: language.Language, codes: np.ndarray, indptr: np.ndarray
) -> sp.csr_matrix:
    """(1,000, 47,236) rows of unit length from the words of each row's topics."""
    lengths = np.maximum(random.lognormal(np.log(language.WORDS_A_ROW) - _SPREAD**2 / 2, _SPREAD, _CHUNK), 4).astype(
        np.int64
    )
    row = np.repeat(np.arange(_CHUNK, dtype=np.uint32), lengths)
    bits = random.integers(0, 1 << 32, len(row), dtype=np.uint32)
    word = words.common[bits >> np.uint32(12)]
    at = np.flatnonzero(random.random(len(row), dtype=np.float32) < language.TOPICAL)
    counts = np.diff(indptr)[row[at]]
    pick = indptr[row[at]] + (random.random(len(at)) * counts).astype(np.int64)
    word[at] = words.topical[codes[pick], bits[at] & np.uint32(language.TOPIC_TABLE - 1)]
    keys = np.sort(row << np.uint32(16) | word)
    new = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    times = np.diff(np.append(new, len(keys)))
    keys = keys[new]
    indices = (keys & np.uint32(0xFFFF)).astype(np.int32)
    starts = np.searchsorted(keys, np.arange(_CHUNK + 1, dtype=np.uint64) << np.uint64(16)).astype(np.int32)
    values = (1.0 + np.log(times)) * words.idf[indices]
    norms = np.sqrt(np.add.reduceat(values**2, starts[:-1]))
    values /= np.repeat(norms, np.diff(starts))
    matrix = sp.csr_matrix((values, indices, starts), shape=(_CHUNK, language.WIDTH))
    matrix.has_canonical_format = True
    return matrix


def _in_order_met(targets: Targets) -> Targets:
    """The same targets with labels in order of first appearance and only those that appear."""
    order, codes = by_appearance(targets.codes, len(targets.labels))
    if targets.indptr is not None:
        codes, _ = distinct_within(codes, targets.indptr)
    return targets._replace(labels=tuple(targets.labels[i] for i in order), codes=codes)


def _first_rows(targets: Targets, rows: int) -> Targets:
    return _in_order_met(targets.take(np.arange(rows)))
