"""Targets of rows, and their conversion from callers' y."""
