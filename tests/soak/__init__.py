"""A long run under churn, with books kept outside of the broker: `python -m tests.soak`."""
