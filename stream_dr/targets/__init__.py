"""Targets of rows, and the conversion of the targets y that a caller passes."""
