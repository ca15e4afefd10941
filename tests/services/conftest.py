"""Servers that `make services-up` has started; without one its tests are skipped by name."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Callable, Iterator

import pytest

from tests.services.databases import Database, empty_tables
from tests.services.redis_keys import RedisKeys
from tests.services.state import Running, running

DATABASES = ("sqlite", "postgresql", "mariadb")


@pytest.fixture(scope="session")
def service() -> Callable[[str], Running]:
    """A server by its name."""

    def find(name: str) -> Running:
        found = running().get(name)
        if found is None:
            pytest.skip(f"{name} does not run: make services-up")
        return found

    return find


@pytest.fixture(params=DATABASES)
def database(
    request: pytest.FixtureRequest, tmp_path: pathlib.Path, service: Callable[[str], Running]
) -> Iterator[Database]:
    """A database with two empty tables."""
    with empty_tables(request.param, tmp_path, service) as made:
        yield made


@pytest.fixture
def store(service: Callable[[str], Running]) -> Iterator[RedisKeys]:
    """Redis, with keys of this test."""
    with contextlib.closing(RedisKeys(service("redis").port)) as made:
        yield made


@pytest.fixture(params=[*DATABASES, "redis"])
def users(
    request: pytest.FixtureRequest, tmp_path: pathlib.Path, service: Callable[[str], Running]
) -> Iterator[Database | RedisKeys]:
    """A server without users, whose plugin reads hashes and rules there."""
    if request.param != "redis":
        with empty_tables(request.param, tmp_path, service) as database:
            yield database
        return
    with contextlib.closing(RedisKeys(service("redis").port)) as made:
        yield made
