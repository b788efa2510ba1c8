"""Log: the durable record of events, and the queue between appending and learning."""
