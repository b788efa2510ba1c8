"""Failpoints: places where tests can simulate a crash or full disk.

A failpoint does nothing unless it is armed. The environment variable STREAM_DR_FAILPOINTS, which
is read when this module is imported, arms failpoints, and so does `failpoints_armed(...)`. The
syntax is `NAME=ACTION[@N]`, with commas between several failpoints:

    STREAM_DR_FAILPOINTS=log.before_commit=kill@3,snapshot.rename=raise

ACTION is `kill` (SIGKILL to this process), `raise` (FailpointReached) or `enospc` (the OSError of
a full disk). With @N the action runs only when the place is reached for the N-th time.

| place | state when the place is reached |
|---|---|
| `log.bodies_write` | an append has written nothing |
| `log.bodies_sync` | the append's payloads are written, not synced |
| `log.before_commit`, `log.after_commit` | around the commit of an append |
| `log.rewrite` | a rewrite of events has written nothing |
| `log.rewritten` | the rewrite is committed, the old bytes are still there |
| `log.erased` | the old bytes are overwritten, and still listed for erasure |
| `log.drop`, `log.dropped` | old events: before the commit, and before their files are deleted |
| `models.reserved` | a model that starts from a saved estimator: its id is reserved |
| `models.begun` | the file of the saved estimator is written |
| `models.before_commit`, `models.after_commit` | around the commit of any new model |
| `models.removing`, `models.removed` | a removal: before its commit, before its deletions |
| `releases.written`, `releases.added` | a new release: its file is written, it is in the table |
| `releases.removed` | a removal of a release: before its file is deleted |
| `releases.erasing` | releases with unlearned rows: snapshots are without them, the files are still there |
| `snapshot.noted` | a new snapshot is written, older ones are still there |
| `backup.log`, `backup.copied` | a backup starts, and is copied and checked |
| `P.tmp` | a file with `failpoint_prefix=P`, or a backup, is written, not synced |
| `P.rename` | the file is synced, not renamed |
| `P.dir_fsync` | the file is renamed, its directory is not synced |

If no failpoint is armed, a failpoint costs one truth test of an empty dict, about 40 ns.

Why this way: timing alone cannot hit a moment between two writes often enough.
"""

import errno
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

_armed: dict[str, tuple[str, int]] = {}
"""Action that a test has set for each failpoint, by the failpoint's name.

The action is a name such as "kill" and a number N. The action runs when the failpoint is reached
for the N-th time, or every time if N is 0.
"""

_reached: dict[str, int] = {}
"""Number of times that each failpoint with an action was reached, by the failpoint's name."""


class FailpointReached(RuntimeError):
    """Raised by a failpoint whose action is `raise`, in tests."""


def failpoint(name: str) -> None:
    """Run the action that a test has set for a place.

    If no action is set for the place `name` in the code, nothing happens. The action kills the
    process or raises an error, to simulate a crash or a full disk.
    """
    if _armed:
        _run_action_if_due(name)


def arm_failpoints(spec: str) -> None:
    """Set the actions of failpoints, and remove earlier actions.

    spec: text such as "log.before_commit=kill@3,snapshot.rename=raise" (see the module's
        docstring). "" removes all actions.
    """
    armed_now = {}
    for part in filter(None, spec.split(",")):
        name, _, action = part.partition("=")
        action, _, count = action.partition("@")
        if action not in ("kill", "raise", "enospc"):
            raise ValueError(f"failpoint {part!r}: the action must be kill, raise or enospc.")
        armed_now[name.strip()] = (action, int(count or 0))
    _armed.clear()
    _reached.clear()
    _armed.update(armed_now)


@contextmanager
def failpoints_armed(spec: str) -> Iterator[None]:
    """Set the actions of failpoints for the with-block.

    All actions are removed at the end of the with-block.

    spec: text such as "log.before_commit=kill@3,snapshot.rename=raise" (see the module's
        docstring).
    """
    arm_failpoints(spec)
    try:
        yield
    finally:
        arm_failpoints("")


def _run_action_if_due(name: str) -> None:
    """Count that a failpoint was reached. Run its due action.

    An action with @N is due only when the failpoint is reached for the N-th time. Other actions
    are due every time.
    """
    if name not in _armed:
        return
    action, count = _armed[name]
    _reached[name] = _reached.get(name, 0) + 1
    if count and _reached[name] != count:
        return

    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if action == "enospc":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    raise FailpointReached(name)


arm_failpoints(os.environ.get("STREAM_DR_FAILPOINTS", ""))
