"""The kind is what an earlier batch or the caller has decided; else what the form of y says."""

import numpy as np
import pytest

from stream_dr.errors import InvalidTargets, TargetKindMismatch
from stream_dr.targets.kind import check_target_kind, infer_targets_kind, reconcile_target_kind
from stream_dr.targets.targets import KINDS

LABELS = np.array(["a", None], dtype=object)
WHOLE = np.array([1.0, np.nan, 2.0])
MEASURED = np.array([0.5, np.nan, 2.0])


@pytest.mark.parametrize(
    ("target", "known", "wanted"),
    [("auto", None, None), ("class", None, "class"), ("auto", "class", "class"), ("class", "class", "class")],
)
def test_an_earlier_batch_or_the_caller_decides(target, known, wanted):
    assert reconcile_target_kind(target, known) == wanted


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
    assert infer_targets_kind(y, kinds, None) == kind


@pytest.mark.parametrize("y", [np.eye(2), np.array([1, 2]), WHOLE, MEASURED])
def test_numbers_are_continuous_where_those_are_wanted(y):
    assert infer_targets_kind(y, KINDS, "continuous") == "continuous"


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
        infer_targets_kind(y, KINDS, wanted)


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
        check_target_kind(kind, kinds, wanted)


def test_a_kind_that_the_model_takes_is_none_to_refuse():
    for kind in KINDS:
        check_target_kind(kind, KINDS, None)
        check_target_kind(kind, KINDS, kind)
