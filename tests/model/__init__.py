"""The broker beside a small reference of the standard, under histories that nobody wrote down."""
