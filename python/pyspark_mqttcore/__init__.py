"""Spark imports every package named ``pyspark_*`` to find sources: this is mqttcore's.

``spark.read.format("mqttcore")`` works because of it, without ``spark.dataSource.register``.
"""

from mqttcore.spark.source import MqttcoreDataSource as DefaultSource

__all__ = ["DefaultSource"]
