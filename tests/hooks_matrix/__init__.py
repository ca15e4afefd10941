"""`make hooks-matrix`: each hook with each fault, and what it let through."""
