"""The benchmark of replays in parts, small: a line a way of running it, and the same bits everywhere."""

from pathlib import Path

import pytest

from stream_dr.distributed import parts as planning

pytest.importorskip("distributed", reason="needs the extra [distributed]")
pytestmark = [pytest.mark.test_all, pytest.mark.filterwarnings("ignore::ResourceWarning")]


def test_the_table_has_a_line_a_way_and_the_bits_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.scale_distributed import table

    monkeypatch.setattr(planning, "MIN_TASK_ROWS", 1_000)
    monkeypatch.setattr(planning, "ROW_TO_STATE_BYTES", 0)
    said: list[str] = []
    missed = table(4_000, tmp_path, said.append)
    assert [line.split(" rows ")[0].split() for line in said[:-1]] == [
        [count, way, "4000"] for way in ("threads", "workers") for count in ("1", "2")
    ]
    assert all("(4 tasks" in line for line in said[:-1])
    assert said[-1].startswith("bound ")
    assert "the bits are not the same everywhere" not in missed
