"""compiled: the one way a loop is compiled here, with numba, without the GIL and cached on disk.

Cost: a kernel compiles on its first call for each set of argument types (0.3-3 s), then loads from the cache (about 10 ms).

Why this way: numba raises at import when `cache=True` finds no directory it may write to (a read-only container). The
work can be done all the same, so the kernel is then compiled without cache, and one warning says how to get it back:
set NUMBA_CACHE_DIR.

What a compiled loop calls is compiled with forceinline=True (or inline="always"). Else the loop's object carries its own
copy of the callee, optimised a second time and so summing in another order, under the callee's symbol, and the linker takes
whichever was loaded first: the callee's own where it was compiled in this process, the loop's copy where the loop came from
the cache. States differed by 3e-10 between a first process and the next.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator: `numba.njit(nogil=True, cache=True, **options)`, without cache where no directory is writable.

    options: any of numba.njit's, say fastmath={"reassoc", "contract", "nsz"}. Warns RuntimeWarning once a process when
    there is no cache.
    """
    import numba  # not where nothing is compiled: a client loads none of it

    settings = {"nogil": True, "cache": True, **options}

    def compile_it(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(**settings)(function)
        except RuntimeError as e:
            if "cache" not in str(e) or not settings["cache"]:
                raise
        _warn_no_cache()
        return numba.njit(**{**settings, "cache": False})(function)

    return compile_it


def readonly(array: np.ndarray) -> np.ndarray:
    """A read-only view of an array. A loop is compiled for arrays that may be written to and for others apart: given such
    views it is compiled once, whether they are of a mapped file, the network or the caller."""
    view = array.view()
    view.flags.writeable = False
    return view


def _warn_no_cache() -> None:
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
