"""Readers of file formats. Each yields Blocks without holding the file in memory."""
