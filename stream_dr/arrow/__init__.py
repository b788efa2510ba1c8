"""Bytes to Blocks and back: Arrow IPC, JSON rows, targets."""
