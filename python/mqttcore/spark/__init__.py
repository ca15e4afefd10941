"""Streams of an mqttcore broker as Spark tables."""
