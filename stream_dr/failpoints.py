"""failpoints: named places in the writing code where a test makes a write fail or the process die.

Off unless the environment variable STREAM_DR_FAILPOINTS, read when this module is imported, or `armed(...)` says
otherwise: `NAME=ACTION[@N]`, several joined by commas. ACTION is `kill` (SIGKILL to this process), `raise`
(FailpointReached) or `enospc` (the OSError of a full disk); with @N only the N-th time the place is reached.

    STREAM_DR_FAILPOINTS=log.before_commit=kill@3,snapshot.rename=raise

The places: of an append, `log.bodies_write`, `log.bodies_sync` (written, not yet synced), `log.before_commit`,
`log.after_commit`; of a rewrite, `log.rewrite`, `log.rewritten` (committed, old bytes still there), `log.erased`
(overwritten, still noted); of a few old events, `log.drop` (before the commit), `log.dropped` (their files still there); of
a model that begins with a saved estimator, `models.reserved` (its id is), `models.begun` (its file is there), and of any,
`models.before_commit`, `models.after_commit`, `models.removing` (before the commit), `models.removed` (its snapshots still
there); of a snapshot, `snapshot.noted` (older ones still there); of a backup, `backup.log` (begun), `backup.copied` (all of
it, checked); for each `write_atomically(..., point=P)`, and of a backup's folder: `P.tmp` (written, not yet synced),
`P.rename` (synced, not yet renamed), `P.dir_fsync` (renamed, directory not yet synced).

Cost when off: one truth test of an empty dict, about 40 ns, at places that wait for a disk.

Why this way: a crash between two writes cannot be hit by timing alone often enough to be believed; a name can.
"""

import errno
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

_armed: dict[str, tuple[str, int]] = {}
_reached: dict[str, int] = {}


class FailpointReached(RuntimeError):
    """Raised by an armed failpoint; never in use, only in tests."""


def failpoint(name: str) -> None:
    """Do what was armed for this place; nothing otherwise."""
    if _armed:
        _act(name)


def arm(spec: str) -> None:
    """Arm the places `spec` names (see the module's text), in place of all armed before; "" disarms."""
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
    """Arm within a with-block."""
    arm(spec)
    try:
        yield
    finally:
        arm("")


def _act(name: str) -> None:
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
