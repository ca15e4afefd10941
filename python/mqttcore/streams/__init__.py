"""Streams: messages that the broker keeps as rows, numbered and in order, to be read later."""
