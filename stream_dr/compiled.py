"""Compiled: the decorator of all compiled loops.

Numba compiles the loops to run without the GIL and caches them on disk.

On its first call for each set of argument types, a loop is compiled (0.3-3 s). In later processes
the loop is loaded from the cache (about 10 ms).

Functions that a compiled loop calls must be compiled with forceinline=True. (With inline="always",
numba takes twice as long to compile the loop.) Without this option, the loop's object file has a
second copy of the called function, under the same symbol. The second copy is optimised separately
and sums in another order. The linker uses the copy that was loaded first:

- the function's own copy, if the function was compiled in this process,
- the loop's copy, if the loop came from the cache.

So states differed by 3e-10 between the first process and later processes.

Why this way: numba raises an error at import if `cache=True` finds no directory that it may write
to, as in a read-only container. Then the loop is compiled without a cache, and one warning says
how to enable the cache.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np


def compiled(**numba_options: bool | str | set[str]) -> Callable[[Callable[..., object]], Any]:
    """Return the decorator `numba.njit(nogil=True, cache=True, **options)`.

    If no directory is writable, the decorator compiles without cache and warns (RuntimeWarning),
    once in each process.

    numba_options: options of numba.njit, such as fastmath={"reassoc", "contract", "nsz"}.
    """
    # A process that compiles nothing, such as a client, should not load numba.
    import numba

    settings: dict[str, Any] = {"nogil": True, "cache": True, **numba_options}

    def compile_function(function: Callable[..., object]) -> Any:
        """Compile a function, uncached if no directory is writable."""
        try:
            return numba.njit(**settings)(function)
        except RuntimeError as e:
            if "cache" not in str(e) or not settings["cache"]:
                raise
        _warn_no_cache()
        return numba.njit(**{**settings, "cache": False})(function)

    return compile_function


def readonly_view(array: np.ndarray) -> np.ndarray:
    """Return a read-only view of an array.

    Numba compiles a loop once for writable arrays and once more for read-only arrays. Arrays of a
    mapped file are read-only. If all arrays are passed as read-only views, a loop is compiled only
    once. An array that is read-only already is returned itself.
    """
    if not array.flags.writeable:
        return array
    view = array.view()
    view.setflags(write=False)
    return view


def _warn_no_cache() -> None:
    """Warn once in a process that numba has no writable cache."""
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
"""True after this process has warned that there is no cache."""
