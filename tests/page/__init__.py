"""The page for operators, in a browser."""
