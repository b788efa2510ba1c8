"""Bytes to Blocks and back, for Arrow IPC and JSON, with their targets."""
