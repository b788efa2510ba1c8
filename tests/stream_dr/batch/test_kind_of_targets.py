"""The kind is what an earlier batch or the caller has decided; else what the form of y says."""

import numpy as np
import pytest

from stream_dr.batch.parsing import parse_targets
from stream_dr.batch.targets import KINDS, class_targets, continuous_targets, multilabel_targets
from stream_dr.errors import InvalidTargets, TargetKindMismatch

LABELS = np.array(["a", None], dtype=object)
WHOLE = np.array([1.0, np.nan, 2.0])
MEASURED = np.array([0.5, np.nan, 2.0])


OF_KIND = {
    "class": class_targets(["a"]),
    "multilabel": multilabel_targets([["a"]]),
    "continuous": continuous_targets([0.5]),
}


@pytest.mark.parametrize(
    ("target", "known", "kind"),
    [
        ("auto", None, "continuous"),
        ("class", None, "class"),
        ("auto", "class", "class"),
        ("class", "class", "class"),
    ],
)
def test_an_earlier_batch_or_the_caller_decides(target, known, kind):
    assert parse_targets(WHOLE, 3, KINDS, target, known).kind == kind


@pytest.mark.parametrize(
    ("y", "kinds", "kind"),
    [
        ([["a"], None], KINDS, "multilabel"),
        (np.eye(2), KINDS, "multilabel"),
        (2 * np.eye(2), KINDS, "continuous"),
        (np.empty((0, 2)), KINDS, "continuous"),
        (LABELS, KINDS, "class"),
        (np.array([1, 2]), KINDS, "class"),
        (WHOLE, ("class", "continuous"), "class"),
        (WHOLE, KINDS, "continuous"),
        (MEASURED, ("class", "continuous"), "continuous"),
    ],
)
def test_the_form_says_the_kind(y, kinds, kind):
    assert parse_targets(y, len(y), kinds).kind == kind


@pytest.mark.parametrize("y", [np.eye(2), np.array([1, 2]), WHOLE, MEASURED])
def test_numbers_are_continuous_where_those_are_wanted(y):
    assert parse_targets(y, len(y), KINDS, "continuous").kind == "continuous"


@pytest.mark.parametrize(
    ("y", "wanted", "error", "message"),
    [
        (LABELS, "continuous", TargetKindMismatch, "labels were given .'a'"),
        (LABELS, "multilabel", TargetKindMismatch, "Pass a list of labels a row"),
        (MEASURED, "class", TargetKindMismatch, "not whole"),
        (2 * np.eye(2), "multilabel", TargetKindMismatch, "other than 0 and 1"),
        (2 * np.eye(2), "class", TargetKindMismatch, "one is needed"),
        (np.array([1j]), None, InvalidTargets, "complex"),
        (np.array([["a", "b"]]), None, InvalidTargets, "2-D y must be numbers"),
        (np.array([np.inf]), None, InvalidTargets, "finite"),
        (np.array([2.0**53]), "class", InvalidTargets, "read as a double"),
    ],
)
def test_what_cannot_be_of_the_wanted_kind_is_refused(y, wanted, error, message):
    with pytest.raises(error, match=message):
        parse_targets(y, len(y), KINDS, wanted or "auto")


@pytest.mark.parametrize(
    ("kind", "kinds", "wanted", "message"),
    [
        ("multilabel", ("class",), "class", "OPLS, CCA or HSL"),
        ("continuous", ("class",), None, "learns from class targets"),
        ("class", KINDS, "continuous", "this model was started with continuous"),
        ("continuous", ("class",), "class", "this model was started with class"),
    ],
)
def test_a_kind_that_the_model_does_not_take_is_refused(kind, kinds, wanted, message):
    with pytest.raises(TargetKindMismatch, match=message):
        parse_targets(OF_KIND[kind], 1, kinds, wanted or "auto")


def test_a_kind_that_the_model_takes_is_none_to_refuse():
    for kind in KINDS:
        assert parse_targets(OF_KIND[kind], 1, KINDS) is OF_KIND[kind]
        assert parse_targets(OF_KIND[kind], 1, KINDS, kind) is OF_KIND[kind]
