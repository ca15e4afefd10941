"""What a message costs the built extension, in counts that a busy machine does not change."""
