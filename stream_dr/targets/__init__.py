"""Targets of rows, and the parsing of the targets y that a caller passes."""
