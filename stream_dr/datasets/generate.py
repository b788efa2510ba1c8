"""Generate: made-up rows with the statistics of RCV1-v2.

RCV1-v2 has 804,414 documents and 47,236 terms. A row has 76 nonzeros on average. Its values are
log-tf-idf weights, scaled to norm 1. Term frequencies follow Zipf's law. There are 103 topics in a
tree. The topics at the top of the tree are on 47.4 % (CCAT), 29.7 % (GCAT), 25.5 % (MCAT) and
14.9 % (ECAT) of the rows.

Generated rows have these statistics and the topics of RCV1-v2. The words are made up, so a result
on generated rows is never a result on RCV1.

Each row is generated in these steps:

1. Draw one top topic, and sometimes a second.
2. Draw one or two lower topics under each top topic. The row gets these topics and all their
   ancestors in the tree.
3. Draw the words one by one. Most words come from the whole vocabulary, by Zipf's law. The other
   words are specific to the row's topics.
4. Give each word the weight (1 + log count) · idf. Here count is how often the word was drawn, and
   idf is its inverse document frequency. Then scale the row to norm 1.

A row takes 950 bytes in a shard. The memory is a few MB. The benchmark
`python -m benchmarks.perf generate_rate` measures the speed.

Every 1,000 rows have their own random generator. Its seed consists of the caller's seed and the
number of the thousand. A row therefore does not depend on the number of generated rows or the size
of the shards.

Words are drawn from a table in which each word is repeated in proportion to its frequency. One
lookup draws a word. A binary search in cumulative frequencies would take sixteen lookups.
"""

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp

from stream_dr.aliases import FileName
from stream_dr.datasets import language
from stream_dr.errors import InvalidParameter
from stream_dr.rows.block import Block
from stream_dr.shards.manifest import Manifest
from stream_dr.shards.writer import WriteProgress, write_shards
from stream_dr.targets.label_codes import old_and_new_codes_by_appearance, sort_distinct_codes_in_rows
from stream_dr.targets.targets import Targets

_CHUNK = 1_000
"""Number of rows drawn from one random generator."""

_LENGTH_SIGMA = 0.55
"""Standard deviation of the logarithm of the number of words in a row."""

_FURTHER_TOPIC = 0.27
"""Probability that a second lower topic is drawn under a top topic."""


def generate_rcv1_like(rows: int, targets: str = "topics", seed: int = 0, start: int = 0) -> Iterator[Block]:
    """Yield made-up rows with the statistics of RCV1-v2.

    A block has at most 1,000 rows. The rows are sparse, (rows, 47,236) CSR float64. Each seed
    defines an endless stream of rows. The rows with the numbers `start` to `start + rows − 1` of
    this stream are yielded.

    Parameters
    ----------
    rows : int
        Number of rows.
    targets : "topics" or "top4"
        "topics": each row has several labels, all its topics among 103. "top4": each row has one
        label, its first top topic among four.
    seed : int
        Seed of the stream.
    start : int
        Number of the first row, a multiple of 1,000.

    Raises InvalidParameter.
    """
    if targets not in ("top4", "topics"):
        raise InvalidParameter(f"targets={targets!r}; it must be top4 or topics.")
    if rows < 0 or seed < 0 or start < 0 or start % _CHUNK:
        raise InvalidParameter(
            f"rows={rows}, seed={seed}, start={start}; none may be negative, start a multiple of {_CHUNK}."
        )

    for first in range(start, start + rows, _CHUNK):
        block = _draw_thousand_rows(seed, first // _CHUNK, targets)
        remaining = start + rows - first
        if remaining < _CHUNK:
            targets_of_rows = _sort_labels_by_appearance(block.y.take(np.arange(remaining)))
            block = block._replace(X=block.X[:remaining], y=targets_of_rows)
        yield block


def write_rcv1_like_shards(
    directory: FileName,
    rows: int = language.ROWS,
    targets: str = "topics",
    seed: int = 0,
    rows_per_shard: int = 100_000,
    progress: WriteProgress | None = None,
) -> Manifest:
    """Write made-up rows as shards with a manifest.

    `generate_rcv1_like` yields the rows. A batch of a shard has 1,000 rows.

    Parameters
    ----------
    directory : path
        Folder for the shards.
    rows : int
        Number of rows.
    targets : "topics" or "top4"
        Targets of the rows, as in `generate_rcv1_like`.
    seed : int
        Seed of the stream of rows.
    rows_per_shard : int
        Number of rows in a shard.
    progress : callable or None
        Function called after each batch with the number of rows written so far.
    """
    blocks = generate_rcv1_like(rows, targets, seed)
    return write_shards(blocks, directory, rows_per_shard, _CHUNK, n_features=language.WIDTH, progress=progress)


def _draw_thousand_rows(seed: int, thousand_index: int, targets: str) -> Block:
    """Return 1,000 rows of the stream that a seed defines.

    thousand_index: index of these 1,000 rows. In the stream, the first returned row has the number
        1,000 · thousand_index.
    targets: "topics" or "top4", as in `generate_rcv1_like`.
    """
    words = language.build_word_and_topic_tables()
    random = np.random.Generator(np.random.SFC64((seed, thousand_index)))
    top, codes, indptr = _draw_row_topics(random, words)
    X = _draw_normalised_rows_of_words(random, words, codes, indptr)

    if targets == "top4":
        row_targets = Targets("class", tuple(language.TOP_SHARES), top.astype(np.int32))
    else:
        row_targets = Targets("multilabel", language.TOPICS, codes, indptr)
    return Block(X, _sort_labels_by_appearance(row_targets))


def _draw_row_topics(
    random: np.random.Generator, word_tables: language.WordAndTopicTables
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw the topics of 1,000 rows.

    Returns three values:

    - For each row, the index of its first top topic in `language.TOP_SHARES`.
    - Codes of the topics of row 0, then of row 1, and so on. The codes of a row ascend.
    - The topics of row i are codes[indptr[i] : indptr[i + 1]].

    random: generator of the random numbers.
    word_tables: tables of probabilities from which the topics are drawn.
    """
    # Draw the first and the second top topic of each row. If they are equal, the row has only one.
    pair = np.searchsorted(word_tables.pairs, random.random(_CHUNK) * word_tables.pairs[-1], side="right")
    top, second = np.divmod(pair, len(language.TOP_SHARES))

    # Choose the lower topics. Topics form a tree: each lower topic belongs to one top topic.
    # For each chosen topic, `row` is the index of the row that gets the topic.
    # For each chosen topic, `above` is the index of its top topic.
    has_second = np.flatnonzero(top != second)
    row = np.concatenate([np.arange(_CHUNK), has_second])
    above = np.concatenate([top, second[has_second]])
    repeated = np.flatnonzero(random.random(len(row)) < _FURTHER_TOPIC)
    row = np.concatenate([row, row[repeated]])
    above = np.concatenate([above, above[repeated]])
    topic = (word_tables.under[above] <= random.random(len(row))[:, None]).sum(axis=1)

    # A key is a number that encodes a row and a topic.
    # `np.unique` sorts the keys by row and removes topics that a row has twice.
    keys = row[:, None] * len(language.TOPICS) + word_tables.ancestors[topic]
    keys = np.unique(keys[word_tables.ancestors[topic] >= 0])
    rows, codes = np.divmod(keys, len(language.TOPICS))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=_CHUNK))]).astype(np.int64)
    return top, codes.astype(np.int32), indptr


def _draw_normalised_rows_of_words(
    random: np.random.Generator,
    word_tables: language.WordAndTopicTables,
    topic_codes: np.ndarray,
    topic_indptr: np.ndarray,
) -> sp.csr_matrix:
    """Draw the words of 1,000 rows.

    random: generator of the random numbers.
    word_tables: tables from which the words are drawn.
    topic_codes: codes of the topics of row 0, then of row 1, and so on.
    topic_indptr: (1,001,). The topics of row i are
        topic_codes[topic_indptr[i] : topic_indptr[i + 1]].

    Returns the rows (1,000, 47,236). A column is a word, and each row is scaled to norm 1.
    """
    # Draw the number of words of each row. `row` has the index of the row of each word to draw.
    mean_log_length = np.log(language.WORDS_A_ROW) - _LENGTH_SIGMA**2 / 2
    lengths = np.maximum(random.lognormal(mean_log_length, _LENGTH_SIGMA, _CHUNK), 4).astype(np.int64)
    row = np.repeat(np.arange(_CHUNK, dtype=np.uint32), lengths)

    # `bits` has one random number for each word to draw.
    # The high bits of the number select a word of the whole vocabulary.
    # At some random places, a word of one of the row's topics replaces the word of the vocabulary.
    # The low bits of the number select the word of the topic.
    bits = random.integers(0, 1 << 32, len(row), dtype=np.uint32)
    word = word_tables.common[bits >> np.uint32(12)]
    topical = np.flatnonzero(random.random(len(row), dtype=np.float32) < language.TOPICAL)
    n_topics = np.diff(topic_indptr)[row[topical]]
    pick = topic_indptr[row[topical]] + (random.random(len(topical)) * n_topics).astype(np.int64)
    word[topical] = word_tables.topical[topic_codes[pick], bits[topical] & np.uint32(language.TOPIC_TABLE - 1)]

    # A key is a number that encodes a row and a word.
    # Sorted keys have the order of CSR, and equal keys are counted.
    keys = np.sort(row << np.uint32(16) | word)
    new = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    counts = np.diff(np.append(new, len(keys)))
    keys = keys[new]
    indices = (keys & np.uint32(0xFFFF)).astype(np.int32)
    starts = np.searchsorted(keys, np.arange(_CHUNK + 1, dtype=np.uint64) << np.uint64(16)).astype(np.int32)

    # Weight the words by (1 + log count) · idf, and scale each row to norm 1.
    values = (1.0 + np.log(counts)) * word_tables.idf[indices]
    norms = np.sqrt(np.add.reduceat(values**2, starts[:-1]))
    values /= np.repeat(norms, np.diff(starts))
    matrix = sp.csr_matrix((values, indices, starts), shape=(_CHUNK, language.WIDTH))
    matrix.has_canonical_format = True
    return matrix


def _sort_labels_by_appearance(targets: Targets) -> Targets:
    """Return targets whose labels are sorted by first appearance.

    The label of the first row comes first. Labels that no row has are removed. The codes of the
    rows are changed accordingly.
    """
    order, codes = old_and_new_codes_by_appearance(targets.codes, len(targets.labels))
    if targets.indptr is not None:
        codes, _ = sort_distinct_codes_in_rows(codes, targets.indptr)
    return targets._replace(labels=tuple(targets.labels[i] for i in order), codes=codes)
