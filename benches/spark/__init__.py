"""What `make bench-spark` measures: the Spark source beside what Spark has of its own.

Ratios are the result: both sides of a row take turns in one run on one machine, and medians are
compared. CPU seconds are those of the JVM and its Python workers; on a busy machine only their
ratios mean something.
"""
