"""Language: made-up words and topics of generated rows (see generate.py).

It is built when it is first used, in about 0.25 s a process, and takes 3 MB.

Why this way: the language is the same for every seed, so a model can learn rows of one seed and be
tested on rows of another.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

WIDTH = 47_236
"""Number of terms."""

ROWS = 804_414
"""Number of documents of RCV1-v2."""

TOP_SHARES = {"CCAT": 0.474, "GCAT": 0.297, "MCAT": 0.255, "ECAT": 0.149}
"""Share of the rows that have each top topic."""

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
"""The 103 topics. Each stands before the topics under it."""

_COMMON_TABLE = 1 << 20
"""Length of the table from which common words are drawn."""

TOPIC_TABLE = 1 << 12
"""Length of a topic's table of its own words."""

_TOPIC_WORDS = 400
"""Number of words that a topic has of its own."""

WORDS_A_ROW = 81.0
"""Mean number of words in a row. Some are equal, which leaves 76 nonzeros."""

TOPICAL = 0.22
"""Share of the words that are drawn from the own words of a row's topics."""


class Language(NamedTuple):
    """Words and topics that all seeds share.

    Attributes
    ----------
    common : (2^20,) uint16
        Table of words. A word fills entries in proportion to its frequency.
    topical : (103, 2^12) uint16
        Such a table of each topic's own words.
    idf : (47,236,) float64
        Inverse document frequency of each word.
    ancestors : (103, 4) int64
        Codes of a topic and of those above it, then −1.
    under : (4, 103) float64
        Cumulative shares of the topics under each top topic.
    pairs : (16,) float64
        Cumulative shares of (first, second) top topics. A pair of equal ones has no second.
    """

    common: np.ndarray
    topical: np.ndarray
    idf: np.ndarray
    ancestors: np.ndarray
    under: np.ndarray
    pairs: np.ndarray


@lru_cache(maxsize=1)
def build_language() -> Language:
    """Return the words and topics, which are always the same."""
    random = np.random.default_rng(1996)

    # Zipf's law, over the words in an arbitrary order.
    share = 1.0 / (np.arange(WIDTH) + 8.0)
    share = share[random.permutation(WIDTH)] / share.sum()
    topical = np.stack([_topic_table(random, share) for _ in TOPICS])

    # A word is absent from a row with the probability of a Poisson count of 0.
    overall_share = (1 - TOPICAL) * share + TOPICAL * np.bincount(topical.ravel(), minlength=WIDTH) / topical.size
    present = 1.0 - np.exp(-WORDS_A_ROW * overall_share)
    idf = np.log(ROWS / np.clip(ROWS * present, 1.0, None))

    return Language(
        _proportional_table(share, _COMMON_TABLE),
        topical,
        idf,
        _ancestor_table(),
        _shares_under_top_topics(),
        _top_topic_pair_shares(),
    )


def _topic_table(random: np.random.Generator, share: np.ndarray) -> np.ndarray:
    """Return a table of a topic's own words, some common and some rare.

    Their frequencies follow Zipf's law too.
    """
    # The words with the largest keys are a draw without replacement, with weights √share.
    keys = random.random(WIDTH) ** (1.0 / np.sqrt(share))
    largest = np.argpartition(keys, -_TOPIC_WORDS)[-_TOPIC_WORDS:]

    # argpartition's order depends on the processor.
    words = np.sort(largest)
    own_share = 1.0 / (np.arange(_TOPIC_WORDS) + 4.0)
    table = _proportional_table(own_share / own_share.sum(), TOPIC_TABLE)
    return random.permutation(words)[table].astype(np.uint16)


def _proportional_table(share: np.ndarray, size: int) -> np.ndarray:
    """Return a table (size,) that has each number in proportion to its share.

    The numbers are 0 … len(share) − 1, ascending.
    """
    middle = (np.arange(size) + 0.5) / size
    return np.searchsorted(np.cumsum(share), middle * share.sum()).astype(np.uint16)


def _parent_topic(topic: str) -> str | None:
    """Return the topic above, or None for a top topic.

    It is the longest shorter code that is a topic, or else the top topic of its letter.
    """
    if topic in TOP_SHARES:
        return None
    prefixes = (topic[:n] for n in range(len(topic) - 1, 1, -1))
    return next((p for p in prefixes if p in TOPICS), f"{topic[0]}CAT")


def _ancestor_table() -> np.ndarray:
    """Return the table `Language.ancestors`."""
    table = np.full((len(TOPICS), 4), -1, dtype=np.int64)
    for i, topic in enumerate(TOPICS):
        above: str | None = topic
        for j in range(4):
            if above is not None:
                table[i, j] = TOPICS.index(above)
                above = _parent_topic(above)
    return table


def _shares_under_top_topics() -> np.ndarray:
    """Return cumulative shares (4, 103) of the topics under each top topic.

    They follow Zipf's law, in an order of each top topic's own.
    """
    shares = np.zeros((len(TOP_SHARES), len(TOPICS)))
    for i, top in enumerate(TOP_SHARES):
        under = [j for j, topic in enumerate(TOPICS) if topic[0] == top[0] and topic != top]
        order = np.random.default_rng(i).permutation(len(under))
        shares[i, under] = 1.0 / (order + 2.0)
    return np.cumsum(shares / shares.sum(axis=1, keepdims=True), axis=1)


def _top_topic_pair_shares() -> np.ndarray:
    """Return cumulative shares (16,) of (first, second) top topics.

    A pair of equal ones has no second. The rows that have a top topic are TOP_SHARES of all.
    """
    shares = np.array(list(TOP_SHARES.values()))
    first = shares / shares.sum()
    extra = shares.sum() - 1.0
    pairs = np.outer(first, first)
    np.fill_diagonal(pairs, 0.0)

    # Iterative proportional fitting: each topic is as often a second topic as a first one.
    for _ in range(200):
        pairs *= (extra * first / pairs.sum(axis=1))[:, None]
        pairs *= extra * first / pairs.sum(axis=0)

    np.fill_diagonal(pairs, first - pairs.sum(axis=1))
    return np.cumsum(pairs.ravel())
