"""Streams, end to end: a broker process, what becomes rows, and who reads them."""
