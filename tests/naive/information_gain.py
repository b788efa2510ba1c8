"""Information gain as the textbook has it: entropies of label columns, one feature at a time."""

import math
from collections import Counter


def entropy(labels):
    """H of a list of labels, in nats."""
    total = len(labels)
    return -sum(n / total * math.log(n / total) for n in Counter(labels).values()) if total else 0.0


def information_gain(X, labels):
    """One gain a column of X (rows, features): H(label) − P(t) H(label|t) − P(¬t) H(label|¬t)."""
    gains = []
    for column in zip(*X, strict=True):
        there = [label for v, label in zip(column, labels, strict=True) if v != 0]
        gone = [label for v, label in zip(column, labels, strict=True) if v == 0]
        n = len(labels)
        gains.append(entropy(labels) - len(there) / n * entropy(there) - len(gone) / n * entropy(gone))
    return gains


def multilabel_information_gain(X, label_sets):
    """The sum over labels of the gain about having that label."""
    every = sorted({label for s in label_sets for label in s})
    parts = [information_gain(X, [label in s for s in label_sets]) for label in every]
    return [sum(column) for column in zip(*parts, strict=True)]
