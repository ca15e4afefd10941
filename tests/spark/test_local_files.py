"""How Spark's driver writes files of this machine in a session of ours."""

from __future__ import annotations

import logging
import pathlib
from typing import TYPE_CHECKING, Any

import pytest
from mqttcore.spark import local_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_permissions_are_those_that_hadoop_gives(
    spark: SparkSession, tmp_path: pathlib.Path
) -> None:
    java: Any = spark._jvm
    files = java.org.apache.hadoop.fs
    hadoops = files.RawLocalFileSystem()
    hadoops.initialize(java.java.net.URI("file:///"), spark._jsc.hadoopConfiguration())
    ours = in_use(spark)
    assert ours.getClass().getName() == local_files.OURS

    for wanted in (0o600, 0o640, 0o755, 0o777, 0o000, 0o1777):
        permission = files.permission.FsPermission(format(wanted, "04o"))
        for name, system in {"ours": ours, "hadoops": hadoops}.items():
            (tmp_path / name).touch()
            system.setPermission(files.Path(str(tmp_path / name)), permission)
            assert (tmp_path / name).stat().st_mode & 0o7777 == wanted, name
    for name, system in {"ours": ours, "hadoops": hadoops}.items():
        system.create(files.Path(str(tmp_path / "made" / name))).close()
    ours_mode, hadoops_mode = ((tmp_path / "made" / n).stat().st_mode for n in ("ours", "hadoops"))
    assert ours_mode == hadoops_mode


def test_a_stream_has_its_checkpoint_written_by_it(
    spark: SparkSession, tmp_path: pathlib.Path
) -> None:
    # what a stream is given: the session's settings, copied
    settings = spark._jsparkSession.sessionState().newHadoopConf()
    java: Any = spark._jvm
    place: Any = java.org.apache.hadoop.fs.Path(str(tmp_path))

    assert place.getFileSystem(settings).getClass().getName() == local_files.OURS


def test_where_it_cannot_be_compiled_all_works_as_before(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    tmp_path: pathlib.Path,
) -> None:  # fmt: skip
    (tmp_path / "LocalFiles.java").write_text("no Java")
    monkeypatch.setattr("importlib.resources.files", lambda _: tmp_path)
    before = in_use(spark).hashCode()

    with caplog.at_level(logging.WARNING):
        local_files.without_chmod(spark)

    assert "a process for each checkpoint file" in caplog.text
    assert in_use(spark).hashCode() == before


def test_hadoop_takes_it_for_what_it_buffers_on_the_way_to_a_store(
    spark: SparkSession, tmp_path: pathlib.Path
) -> None:
    java: Any = spark._jvm
    files = java.org.apache.hadoop.fs
    place = files.Path(str(tmp_path / "part" / "file"))

    # s3a asks for this one, which is a LocalFileSystem or an error
    buffers = files.FileSystem.getLocal(spark._jsc.hadoopConfiguration())
    out = buffers.create(place)
    out.write(7)
    out.close()

    assert buffers.getClass().getName() == local_files.OURS
    assert (tmp_path / "part" / "file").read_bytes() == b"\7"
    assert [file.name for file in (tmp_path / "part").iterdir()] == ["file"]
    assert buffers.rename(place, files.Path(str(tmp_path / "moved")))
    assert buffers.open(files.Path(str(tmp_path / "moved"))).read() == 7


def test_another_file_system_stays(spark: SparkSession) -> None:
    settings, before = spark._jsc.hadoopConfiguration(), in_use(spark).hashCode()
    settings.set(local_files.SETTING, "org.apache.hadoop.fs.LocalFileSystem")
    try:
        local_files.without_chmod(spark)
    finally:
        settings.unset(local_files.SETTING)
    assert in_use(spark).hashCode() == before


def in_use(spark: SparkSession) -> Any:  # noqa: ANN401 -- Hadoop's
    """The file system that everybody in this JVM gets for files of this machine."""
    java: Any = spark._jvm
    place = java.java.net.URI("file:///")
    return java.org.apache.hadoop.fs.FileSystem.get(place, spark._jsc.hadoopConfiguration())
