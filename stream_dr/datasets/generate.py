"""Made-up rows with the statistics of RCV1-v2.

RCV1-v2 has 804,414 documents and 47,236 terms. A row has 76 nonzeros on average. Its values are
log-tf-idf weights, scaled to norm 1. Term frequencies follow Zipf's law. There are 103 topics in a
tree. The topics at the top of the tree are on 47.4 % (CCAT), 29.7 % (GCAT), 25.5 % (MCAT) and
14.9 % (ECAT) of the rows.

Generated rows have these statistics and the topics of RCV1-v2. The words are made up, so a result
on generated rows is never a result on RCV1.

Each row is generated in these steps:

1. Draw one main topic, and sometimes a second.
2. Draw one or two lower topics under each main topic. The row gets these topics and all their
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

The tables of words and topics take 3 MB. They are built at their first use, which takes about
0.25 s in each process.

The words and topics do not depend on the seed. A model can therefore learn rows of one seed and be
tested on rows of another seed.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from stream_dr.aliases import FileName
from stream_dr.batch.block import Block
from stream_dr.batch.targets import Targets, renumber_codes, sort_row_codes
from stream_dr.errors import InvalidParameter
from stream_dr.shards.folder import Manifest, WriteProgress, write_shards

WIDTH = 47_236
"""Number of different words."""

ROWS = 804_414
"""Number of documents of RCV1-v2."""

TOP_SHARES = {"CCAT": 0.474, "GCAT": 0.297, "MCAT": 0.255, "ECAT": 0.149}
"""For each main topic, the share of the rows that have this topic."""

_CODES = """
CCAT C11 C12 C13 C14 C15 C151 C1511 C152 C16 C17 C171 C172 C173 C174 C18 C181 C182 C183 C21 C22 C23
C24 C31 C311 C312 C313 C32 C33 C331 C34 C41 C411 C42
ECAT E11 E12 E121 E13 E131 E132 E14 E141 E142 E143 E21 E211 E212 E31 E311 E312 E313 E41 E411 E51
E511 E512 E513 E61 E71
GCAT G15 G151 G152 G153 G154 G155 G156 G157 G158 G159 GCRIM GDEF GDIP GDIS GENT GENV GFAS GHEA GJOB
GMIL GOBIT GODD GPOL GPRO GREL GSCI GSPO GTOUR GVIO GVOTE GWEA GWELF
MCAT M11 M12 M13 M131 M132 M14 M141 M142 M143
"""

TOPICS = tuple(_CODES.split())
"""The 103 topics. A topic comes before the topics under it in the tree."""

_COMMON_TABLE = 1 << 20
"""Number of entries of the table from which words of the whole vocabulary are drawn."""

TOPIC_TABLE = 1 << 12
"""Number of entries of the table from which the specific words of one topic are drawn."""

_TOPIC_WORDS = 400
"""Number of words that are specific to a topic."""

WORDS_A_ROW = 81.0
"""Mean number of words drawn for a row.

Some words are drawn twice, so a row has only 76 nonzeros on average.
"""

TOPICAL = 0.22
"""Share of a row's words that are drawn from the words specific to the row's topics."""


class WordAndTopicTables(NamedTuple):
    """Words and topics from which rows are drawn.

    A word is a number below 47,236, and a topic is a number below 103.

    Attributes
    ----------
    common : (2^20,) uint16
        Words of the whole vocabulary. A word is repeated in proportion to its frequency.
    topical : (103, 2^12) uint16
        For each topic, the words that are specific to the topic. A word is repeated in proportion
        to its frequency.
    idf : (47,236,) float64
        Inverse document frequency of each word.
    ancestors : (103, 4) int64
        Row i has the topic i, its parent, the parent's parent and so on. Unused entries are −1.
    under : (4, 103) float64
        For each main topic, the cumulative probabilities of the lower topics under it.
    pairs : (16,) float64
        Cumulative probabilities of the 4 · 4 pairs (first, second) of main topics. A pair of two
        equal topics means that a row has only one main topic.
    """

    common: np.ndarray
    topical: np.ndarray
    idf: np.ndarray
    ancestors: np.ndarray
    under: np.ndarray
    pairs: np.ndarray


@lru_cache(maxsize=1)
def build_vocabulary() -> WordAndTopicTables:
    """Return the tables from which words and topics of documents are drawn.

    They do not depend on the seed of the documents. A document has topics. TOPICAL is the share of
    its words that is drawn from tables of its topics, and the rest is drawn from one table for all.
    """
    # The seed is a constant, so that all rows have the same vocabulary.
    random = np.random.default_rng(1996)

    # The frequencies of words follow Zipf's law. They are assigned to the words in random order.
    # `share` (47,236,) has the frequency of each word, `topical` (103, 4,096) the words of topics.
    # The shift by 8 makes the most frequent words less dominant.
    share = 1.0 / (np.arange(WIDTH) + 8.0)
    share = share[random.permutation(WIDTH)] / share.sum()
    topical = np.stack([_draw_topic_words(random, share) for _ in TOPICS])

    # The number of times that a row has a word is approximately Poisson distributed.
    # `present` is the probability that a row has the word at least once.
    # `topic_count` is the number of times that each word is in the tables of all topics.
    topic_count = np.bincount(topical.ravel(), minlength=WIDTH)
    overall_share = (1 - TOPICAL) * share + TOPICAL * topic_count / topical.size
    present = 1.0 - np.exp(-WORDS_A_ROW * overall_share)
    # idf = log(number of rows / number of rows that have the word), and at least one row has it.
    idf = np.log(ROWS / np.clip(ROWS * present, 1.0, None))

    return WordAndTopicTables(
        common=_repeat_indices_by_share(share, _COMMON_TABLE),
        topical=topical,
        idf=idf,
        ancestors=_ancestor_codes(),
        under=_cumulative_subtopic_shares(),
        pairs=_cumulative_topic_pair_shares(),
    )


def _draw_topic_words(random: np.random.Generator, word_shares: np.ndarray) -> np.ndarray:
    """Return a table of words specific to one topic.

    The table is (TOPIC_TABLE,) uint16. A word is repeated in proportion to its frequency in the
    topic. The topic has _TOPIC_WORDS different words, some common and some rare. Their frequencies
    in the topic follow Zipf's law.

    word_shares: frequency of each word in the whole vocabulary.
    """
    # The key of a word is u^(1 / √share), with u uniform in [0, 1).
    # The words with the largest keys are a random draw without replacement, with weights √share.
    keys = random.random(WIDTH) ** (1.0 / np.sqrt(word_shares))
    largest = np.argpartition(keys, -_TOPIC_WORDS)[-_TOPIC_WORDS:]

    # Sort the words, because argpartition returns them in an order that depends on the processor.
    words = np.sort(largest)
    # `ranks` has the ranks 0 to 399, each repeated by its frequency in the topic. A rank becomes a
    # word at random. The shift by 4 makes the most frequent words less dominant.
    own_share = 1.0 / (np.arange(_TOPIC_WORDS) + 4.0)
    ranks = _repeat_indices_by_share(own_share / own_share.sum(), TOPIC_TABLE)
    return random.permutation(words).take(ranks).astype(np.uint16)


def _repeat_indices_by_share(shares: np.ndarray, n_entries: int) -> np.ndarray:
    """Return ascending indices (n_entries,) uint16, repeated by their shares.

    The index i appears in proportion to shares[i].
    """
    # Entry j is the first index whose cumulative share reaches (j + 0.5) / n_entries of the sum.
    middle: np.ndarray = (np.arange(n_entries) + 0.5) / n_entries * shares.sum()
    return np.searchsorted(np.cumsum(shares), middle).astype(np.uint16)


def _parent_topic(topic: str) -> str | None:
    """Return a topic's parent, or None for a main topic."""
    # The names show the tree. For example, the parent of C151 is C15.
    if topic in TOP_SHARES:
        return None
    prefixes = (topic[:n] for n in range(len(topic) - 1, 1, -1))
    return next((p for p in prefixes if p in TOPICS), f"{topic[0]}CAT")


def _ancestor_codes() -> np.ndarray:
    """Return the codes of each topic and its ancestors.

    The array is (topics, 4). Row i has the topic i, its parent, the parent's parent and so on. A
    code is an index in TOPICS. Unused entries are −1.
    """
    table = np.full((len(TOPICS), 4), -1, dtype=np.int64)
    for i, topic in enumerate(TOPICS):
        # No topic has more than three ancestors.
        above: str | None = topic
        for j in range(4):
            if above is not None:
                table[i, j] = TOPICS.index(above)
                above = _parent_topic(above)
    return table


def _cumulative_subtopic_shares() -> np.ndarray:
    """Return the cumulative probabilities (4, 103) of topics below each main topic.

    There are 103 topics in a tree, whose 4 roots are the main topics. Entry (i, j) is the
    probability that a topic drawn below the main topic i is one of the topics 0 to j. The
    probabilities of the topics below it follow Zipf's law, in random order.
    """
    shares = np.zeros((len(TOP_SHARES), len(TOPICS)))
    for i, top in enumerate(TOP_SHARES):
        under = [j for j, topic in enumerate(TOPICS) if topic[0] == top[0] and topic != top]
        order = np.random.default_rng(i).permutation(len(under))
        shares[i, under] = 1.0 / (order + 2.0)
    return np.cumsum(shares / shares.sum(axis=1, keepdims=True), axis=1)


def _cumulative_topic_pair_shares() -> np.ndarray:
    """Return the cumulative probabilities (16,) of pairs of main topics.

    A row has one or two of the 4 main topics, which TOP_SHARES has. So there are 4 · 4 pairs (first
    main topic, second main topic). A pair of two equal topics means a row with only one main topic.
    The probabilities are chosen so that the share of rows with each main topic is its value in
    TOP_SHARES.
    """
    # `first` (4,) is the probability of each main topic to be the first topic of a row.
    # The shares sum to more than 1, because rows with two main topics count twice. `extra` is the
    # share of these rows.
    shares = np.array(list(TOP_SHARES.values()))
    first = shares / shares.sum()
    extra = shares.sum() - 1.0
    pairs = np.outer(first, first)
    np.fill_diagonal(pairs, 0.0)

    # Iterative proportional fitting: scale the rows and columns of `pairs` in turn, until the sums
    # of each topic's row (as first topic) and column (as second topic) are both extra · first.
    # After 200 rounds, this has converged.
    for _ in range(200):
        pairs *= (extra * first / pairs.sum(axis=1))[:, None]
        pairs *= extra * first / pairs.sum(axis=0)

    # The remaining probability of each first topic is that of rows with this topic only.
    np.fill_diagonal(pairs, first - pairs.sum(axis=1))
    return np.cumsum(pairs.ravel())


_CHUNK = 1_000
"""Number of rows drawn from one random generator."""

_LENGTH_SIGMA = 0.55
"""Standard deviation of the logarithm of the number of words in a row."""

_FURTHER_TOPIC = 0.27
"""Probability that a second lower topic is drawn under a main topic."""


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
        "topics": the labels of a row are all its topics, of which there are 103. "top4": the label
        of a row is one of four main topics.
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
        # The last block may have fewer rows. Its labels are numbered anew, without unused labels.
        remaining = start + rows - first
        if remaining < _CHUNK:
            targets_of_rows = _sort_labels_by_appearance(block.y.take(np.arange(remaining)))
            block = block._replace(X=block.X[:remaining], y=targets_of_rows)
        yield block


def write_rcv1_like_shards(
    directory: FileName,
    rows: int = ROWS,
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
    return write_shards(blocks, directory, rows_per_shard, _CHUNK, n_features=WIDTH, progress=progress)


def _draw_thousand_rows(seed: int, thousand_index: int, targets: str) -> Block:
    """Return 1,000 rows of the stream that a seed defines.

    thousand_index: index of these 1,000 rows. In the stream, the first returned row has the number
        1,000 · thousand_index.
    targets: "topics" or "top4", as in `generate_rcv1_like`.
    """
    words = build_vocabulary()
    random = np.random.Generator(np.random.SFC64((seed, thousand_index)))
    # A topic belongs to one of four main topics, such as CCAT. `main_topics` (rows,) has the index
    # of the main topic of each row. All topics of row i are codes[indptr[i] : indptr[i + 1]].
    main_topics, codes, indptr = _draw_row_topics(random, words)
    X = _draw_word_rows(random, words, codes, indptr)

    if targets == "top4":
        row_targets = Targets("class", tuple(TOP_SHARES), main_topics.astype(np.int32))
    else:
        row_targets = Targets("multilabel", TOPICS, codes, indptr)
    return Block(X, _sort_labels_by_appearance(row_targets))


def _draw_row_topics(
    random: np.random.Generator, word_tables: WordAndTopicTables
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw the topics of 1,000 rows, from a tree of topics with 4 roots (main topics).

    Returns three values:

    - `top`: number, from 0 to 3, of the first main topic of each row.
    - `codes`: codes of the topics of row 0, then of row 1, and so on. The codes of a row ascend.
    - `indptr`: offsets in `codes`. The topics of row i are codes[indptr[i] : indptr[i + 1]].

    random: generator of the random numbers.
    word_tables: tables of probabilities from which the topics are drawn.
    """
    # A main topic is a root of the tree, such as CCAT.
    # Draw the first and the second main topic of each row. If they are equal, the row has only one.
    # `pairs` has the cumulative probabilities of the pairs. Pair p is divmod(p, 4).
    # The last entry is their sum, by which a random number from 0 to 1 is multiplied.
    pair = np.searchsorted(word_tables.pairs, random.random(_CHUNK) * word_tables.pairs[-1], side="right")
    top, second = np.divmod(pair, len(TOP_SHARES))

    # Choose the lower topics. Topics form a tree: each lower topic belongs to one main topic.
    # For each chosen topic, `row` is the index of the row that gets the topic.
    # For each chosen topic, `above` is the index of its main topic.
    has_second = np.flatnonzero(top != second)
    row = np.concatenate([np.arange(_CHUNK), has_second])
    above = np.concatenate([top, second[has_second]])
    # Some rows get a second lower topic under the same main topic, with probability _FURTHER_TOPIC.
    repeated = np.flatnonzero(random.random(len(row)) < _FURTHER_TOPIC)
    row = np.concatenate([row, row[repeated]])
    above = np.concatenate([above, above[repeated]])
    # `under[t]` has the cumulative probabilities of the lower topics under the main topic t.
    # The drawn topic is the first one whose cumulative probability exceeds the random number.
    draws = random.random(len(row))
    topic = (word_tables.under[above] <= draws[:, None]).sum(axis=1)

    # `ancestors` (len(row), 4) has each topic and its ancestors, and −1 in unused entries.
    # A key is a number that encodes a row and a topic.
    # `np.unique` sorts the keys by row and removes topics that a row has twice.
    ancestors = word_tables.ancestors[topic]
    keys = row[:, None] * len(TOPICS) + ancestors
    keys = np.unique(keys[ancestors >= 0])
    rows, codes = np.divmod(keys, len(TOPICS))
    ends = np.cumsum(np.bincount(rows, minlength=_CHUNK))
    indptr = np.concatenate([[0], ends]).astype(np.int64)
    return top, codes.astype(np.int32), indptr


def _draw_word_rows(
    random: np.random.Generator,
    word_tables: WordAndTopicTables,
    topic_codes: np.ndarray,
    topic_indptr: np.ndarray,
) -> sp.csr_matrix:
    """Draw the words of 1,000 rows, and return the rows.

    random: generator of the random numbers.
    word_tables: tables from which the words are drawn.
    topic_codes: codes of the topics of row 0, then of row 1, and so on.
    topic_indptr: (1,001,). The topics of row i are
        topic_codes[topic_indptr[i] : topic_indptr[i + 1]].

    Returns the rows (1,000, 47,236): tf-idf weights of the drawn words, each row of length 1.
    """
    # Draw a word of the whole vocabulary for each place in a row. `row` has the place's row. The
    # upper 20 of its 32 random bits select a word from the table `common` (2^20,).
    row = _draw_rows_of_words(random)
    bits = random.integers(0, 1 << 32, len(row), dtype=np.uint32)
    word = word_tables.common[bits >> np.uint32(12)]

    # With the probability TOPICAL, a word of one of the row's topics replaces it. The lower 12 bits
    # select it from the topic's row of the table `topical` (103, 2^12).
    topical = np.flatnonzero(random.random(len(row), dtype=np.float32) < TOPICAL)
    topic = _pick_topics(random, row[topical], topic_codes, topic_indptr)
    word[topical] = word_tables.topical[topic, bits[topical] % TOPIC_TABLE]
    return _weight_and_scale_words(row, word, word_tables.idf)


def _draw_rows_of_words(random: np.random.Generator) -> np.ndarray:
    """Draw the number of words of 1,000 rows, and return the row of each word."""
    # A log-normal number with this mean logarithm has the mean WORDS_A_ROW. At least 4 are drawn.
    mean_log_length = np.log(WORDS_A_ROW) - _LENGTH_SIGMA**2 / 2
    lengths = np.maximum(random.lognormal(mean_log_length, _LENGTH_SIGMA, _CHUNK), 4).astype(np.int64)
    return np.repeat(np.arange(_CHUNK, dtype=np.uint32), lengths)


def _pick_topics(
    random: np.random.Generator, rows: np.ndarray, topic_codes: np.ndarray, topic_indptr: np.ndarray
) -> np.ndarray:
    """Return the code of a random topic of each of the given rows."""
    n_topics = np.diff(topic_indptr)[rows]
    offset = (random.random(len(rows)) * n_topics).astype(np.int64)
    return np.asarray(topic_codes[topic_indptr[rows] + offset])


def _weight_and_scale_words(row: np.ndarray, word: np.ndarray, idf: np.ndarray) -> sp.csr_matrix:
    """Return rows (1,000, 47,236) with the weight of each drawn word.

    A column is a word, and each row is scaled to norm 1.

    row: (words,), index of the row for which each word was drawn, ascending.
    word: (words,), the drawn words. A row may have a word several times.
    idf: (47,236,), inverse document frequency of each word.
    """
    # A key is a number of 32 bits that encodes a row and a word (below 2^16). Sorted keys have the
    # order of CSR, and equal keys are counted. `new` has the indices at which another key begins.
    keys = np.sort(row << np.uint32(16) | word)
    differs = keys[1:] != keys[:-1]
    new = np.flatnonzero(np.concatenate([[True], differs]))
    counts = np.diff(np.append(new, len(keys)))
    keys = keys[new]
    indices = (keys & np.uint32(0xFFFF)).astype(np.int32)
    # `starts` (1,001,) has the index in `keys` at which each row starts, and the number of keys.
    first_keys = np.arange(_CHUNK + 1, dtype=np.uint64) << np.uint64(16)
    starts = np.searchsorted(keys, first_keys).astype(np.int32)

    # Weight the words by (1 + log count) · idf, and scale each row to norm 1. Each row has words.
    values = (1.0 + np.log(counts)) * idf[indices]
    norms = np.sqrt(np.add.reduceat(values**2, starts[:-1]))
    values /= np.repeat(norms, np.diff(starts))
    matrix = sp.csr_matrix((values, indices, starts), shape=(_CHUNK, WIDTH))
    matrix.has_canonical_format = True
    return matrix


def _sort_labels_by_appearance(targets: Targets) -> Targets:
    """Return targets with labels sorted by first appearance, without unused labels."""
    # `order` has the old codes in the order of their first appearance. `codes` are indices in it.
    order, codes = renumber_codes(targets.codes, len(targets.labels))
    # If rows have several labels, the codes of each row must ascend.
    if targets.indptr is not None:
        codes, _ = sort_row_codes(codes, targets.indptr)
    return targets._replace(labels=tuple(targets.labels[i] for i in order), codes=codes)
