"""A new estimator is one file and one registry line: this one goes through the library, the command line, snapshots, the
service and a restart, and nothing else knows of it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import stream_dr
from stream_dr.cli import main
from stream_dr.engine.inspect import inspect
from stream_dr.estimators import ESTIMATORS
from tests.service.serving import in_thread
from tests.stream_dr.engine.batches import dense, shards

FILE = '''
from typing import Any, ClassVar, NamedTuple

import numpy as np

from stream_dr.block import Block
from stream_dr.estimators.estimator import Estimator
from stream_dr.estimators.parameter_checks import check_positive_int
from stream_dr.projection import Linear, Projection


class LoudestState(NamedTuple):
    rows: int
    rows_skipped: int
    n_features: int
    target_kind: None
    labels: tuple[Any, ...]
    squares: np.ndarray


class LoudestAccumulator:
    def __init__(self, state: LoudestState | None = None) -> None:
        self.rows, self.rows_skipped, self.n_features, self.target_kind, self.labels, self.squares = state or LoudestState(
            0, 0, 0, None, (), np.zeros(0)
        )

    def add(self, block: Block) -> None:
        sums = np.asarray(block.X.multiply(block.X).sum(axis=0)).ravel() if block.sparse else (block.X**2).sum(axis=0)
        wide = np.zeros(max(len(sums), len(self.squares)))
        wide[: len(self.squares)] += self.squares
        wide[: len(sums)] += sums
        self.squares, self.rows, self.n_features = wide, self.rows + block.rows, len(wide)

    def freeze(self) -> LoudestState:
        return LoudestState(self.rows, 0, self.n_features, None, (), self.squares)


class Loudest(Estimator):
    """Keeps the features of largest mean square."""

    state_type: ClassVar[Any] = LoudestState

    def __init__(self, n_components: int = 2) -> None:
        self.n_components = n_components

    def check_parameters(self) -> None:
        check_positive_int("n_components", self.n_components)

    def accumulator(self, state: Any = None) -> LoudestAccumulator:
        return LoudestAccumulator(state)

    def solve(self, state: LoudestState) -> Projection:
        best = np.argsort(-state.squares, kind="stable")[: self.n_components]
        loadings = np.zeros((state.n_features, len(best)))
        loadings[best, np.arange(len(best))] = 1.0
        return Linear(np.zeros(state.n_features), loadings, state.squares[best] / state.rows, "exact")

    def state_bytes(self, n_features: int, n_targets: int) -> int:
        return 8 * n_features
'''


@pytest.fixture
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The file, and the line."""
    package = tmp_path / "new" / "estimators_of_today"
    package.mkdir(parents=True)
    (package / "loudest.py").write_text(FILE)
    monkeypatch.syspath_prepend(str(package.parent))
    ESTIMATORS._places["loudest"] = "estimators_of_today.loudest:Loudest"
    yield
    del ESTIMATORS._places["loudest"]
    for name in [n for n in sys.modules if n.startswith("estimators_of_today")]:
        del sys.modules[name]


def test_it_goes_everywhere(registered: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, directory = shards(tmp_path / "s", blocks=4), tmp_path / "d"
    with pytest.raises(SystemExit) as ended:
        main(["replay", str(folder), "--dir", str(directory), "--model", "loud=loudest:n_components=3"])
    assert ended.value.code == 0
    assert "loud: 80 rows" in capsys.readouterr().out

    alone = ESTIMATORS["loudest"](n_components=3)
    for seed in range(4):
        alone.partial_fit(dense(seed).X)
    with in_thread(directory) as served:
        client = stream_dr.Client(served.url)
        assert client.model("loud")["rows"] == 80
        np.testing.assert_array_equal(client.transform(dense(9).X, model="loud"), alone.transform(dense(9).X))
        assert client.put_model("other", "loudest", n_components=1)["params"] == {"n_components": 1}
        assert client.partial_fit(dense(4).X, dense(4).y, wait=True)["position"] == 4
        with pytest.raises(stream_dr.errors.InvalidParameter):
            client.put_model("wrong", "loudest", n_components="many")
        client.close()
    alone.partial_fit(dense(4).X)
    told = inspect(directory)["models"]
    assert (told["loud"]["rows"], told["other"]["rows"], told["loud"]["components"]) == (100, 100, 3)

    alone.save(tmp_path / "saved")
    back = stream_dr.load(tmp_path / "saved").partial_fit(dense(5).X)
    np.testing.assert_array_equal(back.components_, alone.partial_fit(dense(5).X).components_)
