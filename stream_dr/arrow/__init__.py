"""Conversion between bytes (Arrow IPC or JSON) and Blocks of rows with targets."""
