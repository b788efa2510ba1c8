"""Targets of rows, and their conversion from the y that a caller passes."""
