"""Convert Arrow or JSON bytes to Blocks, and back.

Arrow bytes are in Arrow's IPC format. A Block has rows with their targets.
"""
