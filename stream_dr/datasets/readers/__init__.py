"""Readers of the field's file formats; each yields Blocks without holding the file in memory."""
