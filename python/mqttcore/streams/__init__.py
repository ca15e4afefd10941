"""Streams: messages that the broker stores as numbered rows, in order, to be read later."""
