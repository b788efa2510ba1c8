"""Readers of file formats. Most read a file in Blocks without holding the file in memory."""
