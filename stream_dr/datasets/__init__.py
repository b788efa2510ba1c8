"""Sources of rows: readers of file formats, conversion to shards, public data sets, generated
rows.
"""
