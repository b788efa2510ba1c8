"""Compiled: the decorator of all compiled loops.

Numba compiles them to run without the GIL and caches them on disk.

A kernel compiles on its first call for each set of argument types (0.3-3 s). In later processes it
loads from the cache (about 10 ms).

Functions that a compiled loop calls must be compiled with forceinline=True or inline="always".
Without it the loop's object has its own copy of the callee under the callee's symbol. That copy is
optimised a second time and sums in another order. The linker takes the copy that was loaded first:
the callee's own if it was compiled in this process, the loop's if the loop came from the cache. So
states differed by 3e-10 between a first process and the next.

Why this way: numba raises at import if `cache=True` finds no directory it may write to, as in a
read-only container. The loop works without a cache too, so it is then compiled without one, and
one warning says how to get the cache back.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np


def compiled(**options: bool | str | set[str]) -> Callable[[Callable[..., object]], Any]:
    """Return the decorator `numba.njit(nogil=True, cache=True, **options)`.

    If no directory is writable, it compiles without cache and issues a RuntimeWarning, one in each
    process.

    options: any of numba.njit's, such as fastmath={"reassoc", "contract", "nsz"}.
    """
    # A process that compiles nothing, such as a client's, does not load numba.
    import numba

    settings: dict[str, Any] = {"nogil": True, "cache": True, **options}

    def compile_it(function: Callable[..., object]) -> Any:
        try:
            return numba.njit(**settings)(function)
        except RuntimeError as e:
            if "cache" not in str(e) or not settings["cache"]:
                raise
        _warn_no_cache()
        return numba.njit(**{**settings, "cache": False})(function)

    return compile_it


def readonly(array: np.ndarray) -> np.ndarray:
    """Return a read-only view of an array.

    Numba compiles a loop for writable arrays and a second time for read-only ones. With such views
    it compiles one loop for arrays of a mapped file, the network and the caller.
    """
    view = array.view()
    view.flags.writeable = False
    return view


def _warn_no_cache() -> None:
    """Warn that there is no cache, if this process has not warned before."""
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            "no directory is writable for compiled kernels: they are compiled anew in every process. "
            "Set NUMBA_CACHE_DIR to a writable directory.",
            RuntimeWarning,
            stacklevel=4,
        )


_warned = False
