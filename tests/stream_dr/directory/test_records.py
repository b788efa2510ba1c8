"""Records: what is written while a directory learns, and that nothing depends on it."""

from pathlib import Path

import numpy as np

from stream_dr.directory.inspect import inspect
from stream_dr.directory.records import RECORDS, Records
from stream_dr.projection import Linear
from stream_dr.running.refine import refine_model
from stream_dr.running.replay import ReplaySettings, replay
from stream_dr.shards.dataset import open_dataset
from stream_dr.solve.orientation import principal_angles
from tests.support.batches import opened, shards


def test_a_replay_and_a_refine_leave_records_and_their_damage_costs_nothing(tmp_path: Path) -> None:
    with opened(tmp_path / "D", lda=("lda", {"scatter": "diagonal", "gamma": 1.0})) as directory:
        replay(directory, open_dataset([shards(tmp_path / "shards")]), ReplaySettings())
        refine_model(directory, directory.model("lda"), 1e-3, 5)
        found = directory.records.read()
    last = [f for f in found if f["kind"] == "progress"][-1]
    assert (last["position"], last["rows"], last["models"]["lda"]["rows"]) == (11, 240, 240)
    assert [f["pass"] for f in found if f["kind"] == "pass"] == list(range(1, 1 + len([*filter(_pass, found)])))
    before = inspect(tmp_path / "D")
    records = Records(tmp_path / "D" / RECORDS)
    assert records.read() == found
    records.path.write_bytes(b"damaged" * 1_000)
    assert records.read() == []
    assert records.newest_scores() == {}
    assert inspect(tmp_path / "D") == before
    records.add("progress", position=1)
    records.add("progress", position=2)
    assert [r["position"] for r in records.read()] == [2]
    records.path.unlink()
    assert inspect(tmp_path / "D") == before
    assert records.read() == []


def _pass(facts: dict[str, object]) -> bool:
    return facts["kind"] == "pass"


def test_the_file_is_bounded_and_keeps_the_newest_the_refines_and_a_thinner_past(tmp_path: Path) -> None:
    kept = Records(tmp_path / RECORDS, max_records=200)
    kept.add("pass", model="lda", number=1)
    for i in range(1_000):
        kept.add("progress", position=i)
    found = kept.read()
    assert len(found) <= 200
    assert found[0]["kind"] == "pass"
    positions = [f["position"] for f in found[1:]]
    assert positions == sorted(positions)
    assert positions[-20:] == list(range(980, 1_000))
    assert positions[0] < 800


def test_a_folder_that_takes_no_file_is_only_logged(tmp_path: Path, caplog) -> None:
    Records(tmp_path / "nowhere" / RECORDS).add("progress")
    assert "not kept up" in caplog.text


def test_principal_angles_are_those_of_the_spans_and_exact_where_they_are_small() -> None:
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(50, 4)))[0]
    small = 1e-9

    def linear(loadings: np.ndarray) -> Linear:
        return Linear(np.zeros(len(loadings)), loadings, np.ones(loadings.shape[1]), "exact")

    turned = np.cos(small) * basis[:, :1] + np.sin(small) * basis[:, 2:3]
    after = np.hstack([turned, basis[:, 3:4]]) @ rng.normal(size=(2, 2))
    found = principal_angles(linear(basis[:, :2]), linear(after))
    np.testing.assert_allclose(found, [small, np.pi / 2], rtol=1e-6)
    grown = principal_angles(linear(basis[:40, :2]), linear(np.vstack([basis[:40, :2], np.zeros((10, 2))])))
    np.testing.assert_allclose(grown, [0, 0], atol=1e-12)
