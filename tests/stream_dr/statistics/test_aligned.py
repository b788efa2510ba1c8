"""Arrays begin at a cache line, large ones at a huge page, and are zeros of their shape."""

import numpy as np
import pytest

from stream_dr.statistics.cache_lines import HUGE_BYTES, LINE_BYTES, aligned_zeros


@pytest.mark.parametrize("shape", [(0, 8), (1, 1), (3, 7), (1_000, 16), (32_767, 16), (32_768, 16), (47_236, 16)])
def test_zeros_of_a_shape_at_an_address(shape: tuple[int, int]) -> None:
    array = aligned_zeros(*shape)
    assert array.shape == shape
    assert array.dtype == np.float64
    assert array.flags.c_contiguous
    assert array.flags.writeable
    assert array.size == 0 or array.ctypes.data % (HUGE_BYTES if array.nbytes >= 2 * HUGE_BYTES else LINE_BYTES) == 0
    assert not array.any()
    array[:] = 1.0
    assert array.sum() == array.size
