"""Jobs: the last ones can be asked for, and those under way always."""

import pytest

from stream_dr import errors
from stream_dr.engine import jobs as engine_jobs
from stream_dr.engine.jobs import Jobs


def test_of_ended_jobs_the_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_jobs, "KEPT", 3)
    jobs = Jobs()
    waiting = jobs.new("refine", "m")
    ended = [jobs.new("snapshot", "m") for _ in range(3)]
    for job in ended:
        job.run(lambda: None)
    more = [jobs.new("snapshot", "m") for _ in range(2)]
    assert [*jobs] == [waiting, *more]
    assert jobs.get(waiting.id) is waiting
    with pytest.raises(errors.UnknownJob, match="the last 3"):
        jobs.get(ended[0].id)
    jobs.cancel()
    assert all(job.cancelled for job in jobs)
