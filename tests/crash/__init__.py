"""A broker that is killed at random moments, and what its clients have to say about it."""
