"""Reads Kafka records as rows of a stream, for streams whose log is Kafka.

The key is the topic, the value the payload. Headers carry the rest as text: ``qos``, ``retain``,
``dup``, ``client_id``, ``content_type``, ``response_topic``, ``correlation_data`` (bytes),
``expiry`` (seconds), ``timestamp_us`` (Kafka's own time has milliseconds only), and each User
Property under ``user.`` and its key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as sql

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["from_kafka"]

USER: Final = "user."


def from_kafka(frame: DataFrame) -> DataFrame:
    """Converts rows of Spark's Kafka source to the columns of a stream.

    The source needs ``includeHeaders=true``. It works for batches and streams. A missing header has
    the value that the broker uses for the missing property: 0, false, or null; ``client_id`` is
    empty.
    """
    microseconds = text("timestamp_us").cast("bigint")
    return frame.select(
        sql.col("partition"),
        sql.col("offset"),
        sql.coalesce(sql.timestamp_micros(microseconds), sql.col("timestamp")).alias("timestamp"),
        sql.col("key").cast("string").alias("topic"),
        sql.coalesce(sql.col("value"), sql.lit(b"")).alias("payload"),
        sql.coalesce(text("qos").cast("tinyint"), sql.lit(0).cast("tinyint")).alias("qos"),
        sql.coalesce(text("retain").cast("boolean"), sql.lit(False)).alias("retain"),
        sql.coalesce(text("dup").cast("boolean"), sql.lit(False)).alias("dup"),
        sql.coalesce(text("client_id"), sql.lit("")).alias("client_id"),
        text("content_type").alias("content_type"),
        text("response_topic").alias("response_topic"),
        header("correlation_data").alias("correlation_data"),
        text("expiry").cast("bigint").alias("expiry"),
        user_properties().alias("user_properties"),
    )


def header(name: str) -> Column:
    """The first header of this name as bytes, or null."""
    named = sql.filter(headers(), lambda one: one["key"] == name)
    return sql.try_element_at(sql.transform(named, lambda one: one["value"]), sql.lit(1))


def text(name: str) -> Column:
    """The first header of this name as text, or null."""
    return header(name).cast("string")


def user_properties() -> Column:
    """The headers of User Properties, in their order; keys may repeat."""
    users = sql.filter(headers(), lambda one: one["key"].startswith(USER))
    pairs = sql.transform(
        users,
        lambda one: sql.struct(
            sql.substring(one["key"], sql.lit(len(USER) + 1), sql.length(one["key"])).alias("key"),
            one["value"].cast("string").alias("value"),
        ),
    )
    # nullable in every part, as the columns of files are
    return pairs.cast("ARRAY<STRUCT<key: STRING, value: STRING>>")


def headers() -> Column:
    """All headers; an empty list if Kafka has null."""
    return sql.coalesce(
        sql.col("headers"), sql.expr("CAST(ARRAY() AS ARRAY<STRUCT<key: STRING, value: BINARY>>)")
    )
