"""`python -m benchmarks.steady` runs from end to end on the digits that come with scikit-learn."""

import re

import numpy as np
import pytest

from benchmarks import steady


def test_the_quick_form_prints_both_tables(capsys: pytest.CaptureFixture[str]) -> None:
    steady.main(["--quick"])
    shown = capsys.readouterr().out
    for kind in steady.KINDS:
        for method in ("LDA", "PCA"):
            (figures,) = re.findall(rf"^{kind}, {method} +(.*)$", shown, flags=re.MULTILINE)
            residual, stored, turned, moved, anew, *recall = map(float, figures.split())
            assert 0 < residual < 1
            assert stored < min(turned, moved)
            assert anew > 0.8
            assert recall[0] < min(recall[1:])
    table = shown.partition("Loss of same-label@10")[2]
    pairs = re.findall(r"^[\d.]+ to [\d.]+ +(\d+) ", table, flags=re.MULTILINE)
    assert sum(map(int, pairs)) == len(steady.KINDS) * 2 * (steady.RELEASES - 1)


def test_a_set_that_is_not_here_is_skipped(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("STREAM_DR_DATA", raising=False)
    steady.main(["--only", "USPS"])
    assert "USPS: skipped, because STREAM_DR_DATA names no folder" in capsys.readouterr().out


def test_rows_drift_by_the_same_angle_from_part_to_part() -> None:
    rows = steady.SETS["digits"][1]()
    parts = [steady.same(rows).parts, steady.drift(rows).parts]
    for number, (still, turned) in enumerate(zip(*parts, strict=True)):
        cosines = (still.X * turned.X).sum(axis=1) / (still.X**2).sum(axis=1)
        assert cosines == pytest.approx(np.cos(np.radians(steady.DEGREES * number)))


def test_new_classes_come_in_the_second_half() -> None:
    parts = steady.new_classes(steady.SETS["digits"][1]()).parts
    assert [len(set(part.y)) for part in parts] == [5] * 5 + [10] * 5
