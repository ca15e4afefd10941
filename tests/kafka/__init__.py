"""A real Kafka on this machine, one node without Docker: what the Kafka path is tested against."""
