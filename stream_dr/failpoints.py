"""Failpoints: named places where a test makes a write fail or the process die.

They are off unless the environment variable STREAM_DR_FAILPOINTS, read when this module is
imported, or `armed(...)` names some. A name is armed by `NAME=ACTION[@N]`, and several are joined
by commas:

    STREAM_DR_FAILPOINTS=log.before_commit=kill@3,snapshot.rename=raise

ACTION is `kill` (SIGKILL to this process), `raise` (FailpointReached) or `enospc` (the OSError of
a full disk). With @N it happens only the N-th time that the place is reached.

| place | state when it is reached |
|---|---|
| `log.bodies_write` | an append has written nothing |
| `log.bodies_sync` | its bodies are written, not synced |
| `log.before_commit`, `log.after_commit` | around the commit of an append |
| `log.rewrite` | a rewrite of events has written nothing |
| `log.rewritten` | it is committed, the old bytes are still there |
| `log.erased` | the old bytes are overwritten, and still noted |
| `log.drop`, `log.dropped` | old events: before the commit, and before their files are deleted |
| `models.reserved` | a model that begins with a saved estimator: its id is reserved |
| `models.begun` | its file is written |
| `models.before_commit`, `models.after_commit` | around the commit of any new model |
| `models.removing`, `models.removed` | a removal: before its commit, before its deletions |
| `snapshot.noted` | a snapshot is noted, older ones are still there |
| `backup.log`, `backup.copied` | a backup begins, and is copied and checked |
| `P.tmp` | a file of `write_atomically(..., point=P)`, or a backup, is written, not synced |
| `P.rename` | it is synced, not renamed |
| `P.dir_fsync` | it is renamed, its directory is not synced |

A place that is not armed costs one truth test of an empty dict, about 40 ns.

Why this way: timing alone cannot hit a moment between two writes often enough.
"""

import errno
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

_armed: dict[str, tuple[str, int]] = {}
"""Action and number N of each armed place, 0 for every time."""

_reached: dict[str, int] = {}
"""Number of times that each armed place was reached."""


class FailpointReached(RuntimeError):
    """Raised by an armed failpoint, in tests only."""


def failpoint(name: str) -> None:
    """Run the action armed for this place, if there is one."""
    if _armed:
        _act(name)


def arm(spec: str) -> None:
    """Arm the places in `spec` and disarm all others.

    spec: as in the module's docstring. "" disarms all.
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
def armed(spec: str) -> Iterator[None]:
    """Arm the places in `spec` within a with-block."""
    arm(spec)
    try:
        yield
    finally:
        arm("")


def _act(name: str) -> None:
    """Run the action of a place, if it is armed and it is the N-th time."""
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


arm(os.environ.get("STREAM_DR_FAILPOINTS", ""))
