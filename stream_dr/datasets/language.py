"""Made-up words and topics, from which generate.py draws rows.

The tables of words and topics take 3 MB. They are built at their first use, which takes about
0.25 s in each process.

The words and topics do not depend on the seed. A model can therefore learn rows of one seed and be
tested on rows of another seed.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

WIDTH = 47_236
"""Number of different words."""

ROWS = 804_414
"""Number of documents of RCV1-v2."""

TOP_SHARES = {"CCAT": 0.474, "GCAT": 0.297, "MCAT": 0.255, "ECAT": 0.149}
"""For each top topic, the share of the rows that have this topic."""

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
        For each top topic, the cumulative probabilities of the lower topics under it.
    pairs : (16,) float64
        Cumulative probabilities of the 4 · 4 pairs (first, second) of top topics. A pair of two
        equal topics means that a row has only one top topic.
    """

    common: np.ndarray
    topical: np.ndarray
    idf: np.ndarray
    ancestors: np.ndarray
    under: np.ndarray
    pairs: np.ndarray


@lru_cache(maxsize=1)
def build_word_and_topic_tables() -> WordAndTopicTables:
    """Return the words and topics.

    The words and topics do not depend on the seed from which rows are drawn.
    """
    random = np.random.default_rng(1996)

    # The frequencies of words follow Zipf's law. They are assigned to the words in random order.
    share = 1.0 / (np.arange(WIDTH) + 8.0)
    share = share[random.permutation(WIDTH)] / share.sum()
    topical = np.stack([_draw_words_of_one_topic(random, share) for _ in TOPICS])

    # The number of times that a row has a word is approximately Poisson distributed.
    # `present` is the probability that a row has the word at least once.
    overall_share = (1 - TOPICAL) * share + TOPICAL * np.bincount(topical.ravel(), minlength=WIDTH) / topical.size
    present = 1.0 - np.exp(-WORDS_A_ROW * overall_share)
    idf = np.log(ROWS / np.clip(ROWS * present, 1.0, None))

    return WordAndTopicTables(
        _repeat_indices_by_share(share, _COMMON_TABLE),
        topical,
        idf,
        _topic_and_ancestor_codes(),
        _cumulative_subtopic_shares(),
        _cumulative_topic_pair_shares(),
    )


def _draw_words_of_one_topic(random: np.random.Generator, word_shares: np.ndarray) -> np.ndarray:
    """Return a table of words specific to one topic.

    The table is (TOPIC_TABLE,) uint16. A word is repeated in proportion to its frequency in the
    topic. The topic has _TOPIC_WORDS different words, some common and some rare. Their frequencies
    in the topic follow Zipf's law.

    word_shares: frequency of each word in the whole vocabulary.
    """
    # The words with the largest keys are a random draw without replacement, with weights √share.
    keys = random.random(WIDTH) ** (1.0 / np.sqrt(word_shares))
    largest = np.argpartition(keys, -_TOPIC_WORDS)[-_TOPIC_WORDS:]

    # Sort the words, because argpartition returns them in an order that depends on the processor.
    words = np.sort(largest)
    own_share = 1.0 / (np.arange(_TOPIC_WORDS) + 4.0)
    table = _repeat_indices_by_share(own_share / own_share.sum(), TOPIC_TABLE)
    return random.permutation(words).take(table).astype(np.uint16)


def _repeat_indices_by_share(shares: np.ndarray, n_entries: int) -> np.ndarray:
    """Return each index, repeated in proportion to its share.

    The result is (n_entries,) uint16, ascending. shares[i] is the share of index i.
    """
    middle: np.ndarray = (np.arange(n_entries) + 0.5) / n_entries * shares.sum()
    return np.searchsorted(np.cumsum(shares), middle).astype(np.uint16)


def _parent_topic(topic: str) -> str | None:
    """Return a topic's parent in the tree of topics.

    The result is None for a top topic. The names show the tree, for example the parent of C151 is
    C15. If no topic's name is the beginning of this topic's name, the parent is the top topic that
    begins with this topic's first letter.
    """
    if topic in TOP_SHARES:
        return None
    prefixes = (topic[:n] for n in range(len(topic) - 1, 1, -1))
    return next((p for p in prefixes if p in TOPICS), f"{topic[0]}CAT")


def _topic_and_ancestor_codes() -> np.ndarray:
    """Return the codes of each topic and its ancestors.

    The array is (topics, 4). Row i has the topic i, its parent, the parent's parent and so on. A
    code is an index in TOPICS. Unused entries are −1.
    """
    table = np.full((len(TOPICS), 4), -1, dtype=np.int64)
    for i, topic in enumerate(TOPICS):
        above: str | None = topic
        for j in range(4):
            if above is not None:
                table[i, j] = TOPICS.index(above)
                above = _parent_topic(above)
    return table


def _cumulative_subtopic_shares() -> np.ndarray:
    """Return the cumulative probabilities of lower topics.

    The array is (4, 103). Row i has the lower topics under the top topic i. The probabilities
    follow Zipf's law. They are assigned to the topics in random order.
    """
    shares = np.zeros((len(TOP_SHARES), len(TOPICS)))
    for i, top in enumerate(TOP_SHARES):
        under = [j for j, topic in enumerate(TOPICS) if topic[0] == top[0] and topic != top]
        order = np.random.default_rng(i).permutation(len(under))
        shares[i, under] = 1.0 / (order + 2.0)
    return np.cumsum(shares / shares.sum(axis=1, keepdims=True), axis=1)


def _cumulative_topic_pair_shares() -> np.ndarray:
    """Return the cumulative probabilities of pairs of top topics.

    The array (16,) has the 4 · 4 pairs (first, second). A pair of two equal topics means that a
    row has only one top topic. The probabilities are chosen so that the share of rows with each
    top topic is its value in TOP_SHARES.
    """
    shares = np.array(list(TOP_SHARES.values()))
    first = shares / shares.sum()
    extra = shares.sum() - 1.0
    pairs = np.outer(first, first)
    np.fill_diagonal(pairs, 0.0)

    # Iterative proportional fitting: scale rows and columns in turn.
    # In the end each topic is the first topic as often as it is the second.
    for _ in range(200):
        pairs *= (extra * first / pairs.sum(axis=1))[:, None]
        pairs *= extra * first / pairs.sum(axis=0)

    np.fill_diagonal(pairs, first - pairs.sum(axis=1))
    return np.cumsum(pairs.ravel())
