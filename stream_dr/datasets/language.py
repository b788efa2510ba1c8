"""Language: made-up words and topics of generated rows (see generate.py).

It is built once a process, in about 0.25 s, and takes 3 MB.

Why this way: the language is the same for every seed, so a model can learn rows of one seed and be
tested on rows of another.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

WIDTH = 47_236
"""Terms."""

ROWS = 804_414
"""Documents of RCV1-v2."""

TOP_SHARES = {"CCAT": 0.474, "GCAT": 0.297, "MCAT": 0.255, "ECAT": 0.149}
"""Share of the rows that have each top topic."""

_CODES = """
CCAT C11 C12 C13 C14 C15 C151 C1511 C152 C16 C17 C171 C172 C173 C174 C18 C181 C182 C183 C21 C22 C23 C24 C31 C311 C312 C313
C32 C33 C331 C34 C41 C411 C42
ECAT E11 E12 E121 E13 E131 E132 E14 E141 E142 E143 E21 E211 E212 E31 E311 E312 E313 E41 E411 E51 E511 E512 E513 E61 E71
GCAT G15 G151 G152 G153 G154 G155 G156 G157 G158 G159 GCRIM GDEF GDIP GDIS GENT GENV GFAS GHEA GJOB GMIL GOBIT GODD GPOL
GPRO GREL GSCI GSPO GTOUR GVIO GVOTE GWEA GWELF
MCAT M11 M12 M13 M131 M132 M14 M141 M142 M143
"""

TOPICS = tuple(_CODES.split())
"""The 103 topics, each before those under it."""

_TABLE = 1 << 20
TOPIC_TABLE = 1 << 12
_TOPIC_WORDS = 400
WORDS_A_ROW = 81.0
TOPICAL = 0.22


class Language(NamedTuple):
    """Words and topics that all seeds share.

    Attributes
    ----------
    common : (2^20,) uint16
        Words, each as often as it is frequent.
    topical : (103, 2^12) uint16
        Each topic's own words, likewise.
    idf : (47,236,)
    ancestors : (103, 4)
        A topic and those above it, then −1.
    under : (4, 103)
        Cumulative shares of the topics under each top one.
    pairs : (16,)
        Cumulative shares of (first, second) top topics. A pair of equal ones has no second.
    """

    common: np.ndarray
    topical: np.ndarray
    idf: np.ndarray
    ancestors: np.ndarray
    under: np.ndarray
    pairs: np.ndarray


@lru_cache(maxsize=1)
def the_language() -> Language:
    """Return the words and topics, which are always the same."""
    random = np.random.default_rng(1996)
    share = 1.0 / (np.arange(WIDTH) + 8.0)
    share = share[random.permutation(WIDTH)] / share.sum()
    topical = np.stack([_topic_table(random, share) for _ in TOPICS])
    everywhere = (1 - TOPICAL) * share + TOPICAL * np.bincount(topical.ravel(), minlength=WIDTH) / topical.size
    present = 1.0 - np.exp(-WORDS_A_ROW * everywhere)
    idf = np.log(ROWS / np.clip(ROWS * present, 1.0, None))
    return Language(_table(share, _TABLE), topical, idf, _ancestors(), _under(), _pairs())


def _topic_table(random: np.random.Generator, share: np.ndarray) -> np.ndarray:
    """A topic's own words: some of the common ones and some rare ones, Zipf among themselves."""
    keys = random.random(WIDTH) ** (1.0 / np.sqrt(share))  # drawn without replacement, weights √share
    largest = np.argpartition(keys, -_TOPIC_WORDS)[-_TOPIC_WORDS:]  # in an order that depends on the processor
    words = np.sort(largest)
    own = 1.0 / (np.arange(_TOPIC_WORDS) + 4.0)
    return random.permutation(words)[_table(own / own.sum(), TOPIC_TABLE)].astype(np.uint16)


def _table(share: np.ndarray, size: int) -> np.ndarray:
    """Numbers 0 … len(share) − 1, `size` of them, each in proportion to its share."""
    middle = (np.arange(size) + 0.5) / size
    return np.searchsorted(np.cumsum(share), middle * share.sum()).astype(np.uint16)


def _parent(topic: str) -> str | None:
    """The topic above: the longest shorter code that is one, else the letter's own."""
    if topic in TOP_SHARES:
        return None
    prefixes = (topic[:n] for n in range(len(topic) - 1, 1, -1))
    return next((p for p in prefixes if p in TOPICS), f"{topic[0]}CAT")


def _ancestors() -> np.ndarray:
    table = np.full((len(TOPICS), 4), -1, dtype=np.int64)
    for i, topic in enumerate(TOPICS):
        above: str | None = topic
        for j in range(4):
            if above is not None:
                table[i, j] = TOPICS.index(above)
                above = _parent(above)
    return table


def _under() -> np.ndarray:
    """(4, 103) cumulative shares of the topics under each top topic, Zipf in an order of their own."""
    shares = np.zeros((len(TOP_SHARES), len(TOPICS)))
    for i, top in enumerate(TOP_SHARES):
        under = [j for j, topic in enumerate(TOPICS) if topic[0] == top[0] and topic != top]
        order = np.random.default_rng(i).permutation(len(under))
        shares[i, under] = 1.0 / (order + 2.0)
    return np.cumsum(shares / shares.sum(axis=1, keepdims=True), axis=1)


def _pairs() -> np.ndarray:
    """Return cumulative shares (16,) of (first, second) top topics.

    A pair of equal ones has no second. Shares of rows are TOP_SHARES.
    """
    shares = np.array(list(TOP_SHARES.values()))
    first, extra = shares / shares.sum(), shares.sum() - 1.0
    pairs = np.outer(first, first)
    np.fill_diagonal(pairs, 0.0)
    for _ in range(200):  # iterative proportional fitting: as often second as first, for each topic
        pairs *= (extra * first / pairs.sum(axis=1))[:, None]
        pairs *= extra * first / pairs.sum(axis=0)
    np.fill_diagonal(pairs, first - pairs.sum(axis=1))
    return np.cumsum(pairs.ravel())
