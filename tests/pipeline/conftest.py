"""The Spark of tests/spark, for the pipeline's tests too."""

from tests.spark.conftest import make_stream, spark

__all__ = ["make_stream", "spark"]
