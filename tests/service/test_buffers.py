"""Buffers are taken again once nobody holds them, and never before."""

import gc
import threading

import numpy as np
import pyarrow as pa

from service.buffers import GRAIN, Buffers


def test_memory_is_taken_again_once_the_last_view_is_gone() -> None:
    buffers = Buffers()
    body = buffers.take(1_000_000)
    body[:] = b"x" * 1_000_000
    parsed = np.frombuffer(pa.py_buffer(body.toreadonly()[500_000:]), np.uint8)
    del body
    gc.collect()
    assert buffers.free == 0
    buffers.take(1_000_000)[:] = b"y" * 1_000_000
    assert bytes(parsed[:4]) == b"xxxx"
    del parsed
    assert buffers.free == 2 * 4 * GRAIN


def test_no_more_is_kept_than_was_said() -> None:
    buffers = Buffers(most=3 * GRAIN)
    held = [buffers.take(GRAIN) for _ in range(5)]
    del held
    assert buffers.free == 3 * GRAIN


def test_sizes_are_kept_apart() -> None:
    buffers = Buffers()
    for size in (1, GRAIN, GRAIN + 1, 7 * GRAIN):
        assert len(buffers.take(size)) == size
    assert buffers.free == (1 + 2 + 7) * GRAIN  # 1 byte and GRAIN bytes are one size


def test_threads_that_take_and_let_go_at_once_keep_their_bytes_apart() -> None:
    buffers, wrong = Buffers(most=4 * GRAIN), []

    def work(number: int) -> None:
        for turn in range(300):
            held = [buffers.take(1 + (turn % 3) * GRAIN) for _ in range(3)]
            for i, view in enumerate(held):
                view[:1] = bytes([3 * number + i])
            wrong.extend(i for i, view in enumerate(held) if view[0] != 3 * number + i)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert buffers.free <= 4 * GRAIN + 8 * GRAIN  # as many pieces more as threads met
