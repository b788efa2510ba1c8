"""Failpoints do nothing unless armed, and then what was armed, at the time it was armed for."""

import os
import signal
import subprocess
import sys

import pytest

from stream_dr.failpoints import FailpointReached, arm_failpoints, failpoint, failpoints_armed


def test_unarmed_places_do_nothing():
    failpoint("log.before_commit")


def test_raise_at_each_time_and_nowhere_else():
    with failpoints_armed("a.b=raise"):
        failpoint("a.c")
        for _ in range(2):
            with pytest.raises(FailpointReached, match=r"a\.b"):
                failpoint("a.b")
    failpoint("a.b")


def test_only_the_nth_time():
    with failpoints_armed("x=raise@3,y=enospc"):
        failpoint("x")
        failpoint("x")
        with pytest.raises(FailpointReached):
            failpoint("x")
        failpoint("x")
        with pytest.raises(OSError, match="No space"):
            failpoint("y")


def test_an_unknown_action_is_refused_and_nothing_is_armed():
    with pytest.raises(ValueError, match="kill, raise or enospc"):
        arm_failpoints("x=explode")
    failpoint("x")


def test_the_environment_arms_and_kill_kills():
    code = "from stream_dr.failpoints import failpoint; failpoint('q'); print('once', flush=True); failpoint('q')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "STREAM_DR_FAILPOINTS": "q=kill@2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    assert done.stdout == "once\n"
