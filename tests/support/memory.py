"""memory: how much a process takes at most for something, and how much it may.

before = reset(pid)
…
assert grown(pid, before) <= allowed(len(body))
"""

import os
import resource
from collections.abc import Callable
from pathlib import Path

PER_BYTE, BESIDE = 64, 64 << 20
"""A request may take so many times its unpacked bytes, and so many bytes beside."""


def allowed(unpacked: int) -> int:
    """Bytes that a request of so many may take."""
    return PER_BYTE * unpacked + BESIDE


def reset(pid: int) -> int:
    """Have a process forget its largest size; the bytes it takes now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return _status(pid, "VmRSS")


def grown(pid: int, before: int) -> int:
    """Bytes by which a process's largest size since `reset` is above what it took then."""
    return _status(pid, "VmHWM") - before


def largest() -> int:
    """Bytes of this process's largest size."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def peak(act: Callable[[], object]) -> tuple[int, str]:
    """Bytes by which a fork of this process grows when it acts, and "", or the error that ended it."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        before, told = largest(), ""
        try:
            act()
        except BaseException as e:
            told = f"{type(e).__name__}: {e}"
        os.write(writing, f"{largest() - before} {told}".encode())
        os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf8") as file:
        size, _, told = file.read().partition(" ")
    os.waitpid(child, 0)
    return int(size or 1 << 62), told


def _status(pid: int, name: str) -> int:
    return 1024 * int(Path(f"/proc/{pid}/status").read_text().split(f"{name}:")[1].split()[0])
