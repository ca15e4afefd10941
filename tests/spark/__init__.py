"""The Spark source: its pure parts without Spark, then with it."""
