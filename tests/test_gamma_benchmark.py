"""Test that `python -m benchmarks.gamma` compares the ways to choose the ridge."""

import numpy as np
import pytest

from benchmarks.gamma import SETS, compare, main, rare, unbalanced
from stream_dr import LDA, OPLS


def rows(seed: int, n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    return rng.normal(size=(n, 12)) + np.eye(3, 12)[y], y


@pytest.mark.test_all
@pytest.mark.filterwarnings("ignore:gamma='cv' chose")
@pytest.mark.parametrize("method", [LDA(), OPLS(standardize=True)])
def test_errors_and_times_of_all_ways_are_measured(method: LDA | OPLS) -> None:
    (X, y), (T, truth) = rows(0), rows(1)
    if isinstance(method, OPLS):
        y, truth = y + X[:, 0], truth + T[:, 0]
    result = compare(method, (X, y), (T, truth))
    assert result.zero == pytest.approx(1 - type(method)(standardize=method.standardize).fit(X, y).score(T, truth))
    assert np.isnan(result.ledoit_wolf) == isinstance(method, OPLS)
    assert abs(result.folds - result.grid) < 0.2
    assert min(result[4:]) > 0


@pytest.mark.parametrize("name", SETS)
def test_no_row_is_both_learned_and_tested(name: str) -> None:
    y = np.repeat(np.arange(10), 180)
    data = SETS[name]
    train, test = data.draw(data.targets(y), np.random.default_rng(0))
    assert len(np.unique(np.concatenate([train, test]))) == len(train) + len(test)


def test_classes_are_drawn_as_unequal_as_their_names_say() -> None:
    y = np.repeat(np.arange(10), 180)
    train, _ = unbalanced(y, np.random.default_rng(0))
    assert sorted(np.bincount(y[train]))[:: len(set(y)) - 1] == [2, 93]

    eight = SETS["digits, 3 % are 8, 500 rows"].targets(y)
    train, test = rare(eight, np.random.default_rng(0))
    assert eight[train].mean() == 0.03
    assert eight[test].mean() == pytest.approx(0.03, abs=0.005)


@pytest.mark.test_all
def test_it_prints_one_table(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--data", "digits, 150 rows", "--splits", "1", "--markdown"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "|---|---|---|---|---|---|---|"
    assert lines[2].startswith("| digits, 150 rows | 0.1")
    assert lines[-1].startswith("1 of 1 data sets")
