"""The durable record of everything a directory was given, and the queue between appending and learning."""
