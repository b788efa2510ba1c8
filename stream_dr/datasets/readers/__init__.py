"""Readers of file formats.

Most readers read a file in Blocks, without the whole file in memory.
"""
