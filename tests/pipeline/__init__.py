"""The ready pipeline."""
