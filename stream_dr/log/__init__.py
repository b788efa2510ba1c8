"""Log: the durable record of events.

Events wait in the log between appending and learning.
"""
