"""budget: how many bytes reading a file or a shard may work on at once (`STREAM_DR_MAX_READ_BYTES`).

It takes at most four times as much; what would take more is refused, with the setting in the error, before it is made.

Why this way: a few kilobytes unpack to gigabytes, in a file as in a request, and files have readers far from whoever set it.
"""

import os

from stream_dr.errors import InvalidParameter

SETTING = "STREAM_DR_MAX_READ_BYTES"
READ_BYTES = 256 << 20
"""What the setting is where nobody sets it."""


def read_budget() -> int:
    """The setting's bytes. Raises InvalidParameter where it is no whole number from 1 MiB on."""
    text = os.environ.get(SETTING) or str(READ_BYTES)
    if not text.isdigit() or int(text) < 1 << 20:
        raise InvalidParameter(f"{SETTING} is {text!r}; it must be a whole number of bytes, 1048576 or more.")
    return int(text)


def allow_more() -> str:
    """What an error says of the setting."""
    return f"at most {read_budget()} bytes are worked on at once: set {SETTING} for more"
