"""How each server is prepared and started."""

from __future__ import annotations

import os
import pathlib
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.services.state import HOST, PASSWORD, ROOT, USER, Running

START_S = 60.0
SUFFIX = "dc=example,dc=com"
"""The tree of the LDAP server; its administrator is ``cn=admin`` in it."""
FOLDERS = ("/usr/lib/postgresql/*/bin", "/usr/sbin", "/usr/bin", "/usr/local/bin")
SLAPD_CONF = """
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
modulepath /usr/lib/ldap
moduleload back_mdb
pidfile {folder}/pid
database mdb
maxsize 16777216
suffix "{suffix}"
rootdn "cn=admin,{suffix}"
rootpw {password}
directory {folder}/data
access to attrs=userPassword by anonymous auth by self write by * none
access to * by dn.exact="cn=reader,{suffix}" read by anonymous auth by * none
"""


LDIF = f"""
dn: {SUFFIX}
objectClass: dcObject
objectClass: organization
dc: example
o: example

dn: cn=reader,{SUFFIX}
objectClass: organizationalRole
objectClass: simpleSecurityObject
cn: reader
userPassword: {PASSWORD}

dn: ou=people,{SUFFIX}
objectClass: organizationalUnit
ou: people
""" + "".join(
    f"""
dn: cn={number},ou=people,{SUFFIX}
objectClass: inetOrgPerson
cn: {number}
sn: {number}
uid: {name}
departmentNumber: d{number}
{more}
"""
    for number, (name, more) in enumerate(
        [
            ("ann", "userPassword: red"),
            ("bob", "departmentNumber: second\nuserPassword: red"),
            ("nopassword", "title: none"),
            ("odd*(x)\\2a", "userPassword: red"),
            ("twin", "userPassword: red"),
            ("twin", "userPassword: red"),
        ]
    )
)
"""Users with the password ``red``."""


class NotInstalledError(Exception):
    """A program is missing."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server: how its folder is prepared, and how it starts in it."""

    name: str
    prepare: Callable[[pathlib.Path], None]
    command: Callable[[pathlib.Path, int], Sequence[str]]
    account: str | None = None
    """Who runs it where the tests run as root."""
    environment: dict[str, str] = field(default_factory=dict)


def program(name: str) -> str:
    """Where a program is.

    Raises:
        NotInstalledError: it is nowhere.
    """
    places = [
        str(path) for folder in FOLDERS for path in sorted(pathlib.Path("/").glob(folder[1:]))
    ]
    found = shutil.which(name, path=os.pathsep.join([*places, os.environ.get("PATH", "")]))
    if found is None:
        raise NotInstalledError(f"{name} is not installed")
    return found


def run(*command: str, folder: pathlib.Path, account: str | None = None) -> None:
    """Runs a program to its end, and shows what it said if it failed."""
    done = subprocess.run(  # noqa: S603 - programs of this file
        command,
        cwd=folder,
        user=account,
        group=account and pwd.getpwnam(account).pw_gid,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed:\n{done.stdout}")


def prepare_postgresql(folder: pathlib.Path) -> None:
    """A cluster with one user."""
    initdb = program("initdb")
    (folder / "password").write_text(PASSWORD)
    run(
        initdb,
        f"--pgdata={folder / 'data'}",
        f"--username={USER}",
        f"--pwfile={folder / 'password'}",
        "--auth=scram-sha-256",
        "--encoding=UTF8",
        "--locale=C",
        "--no-sync",
        folder=folder,
        account=account_of("postgres"),
    )


def postgresql(folder: pathlib.Path, port: int) -> Sequence[str]:
    """Without syncs, and with little memory."""
    settings = {
        "listen_addresses": HOST,
        "unix_socket_directories": "",
        "fsync": "off",
        "shared_buffers": "16MB",
        "max_connections": "60",
    }
    flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    return [program("postgres"), "-D", str(folder / "data"), "-p", str(port), *flags]


def prepare_mariadb(folder: pathlib.Path) -> None:
    """A data folder, and a file with the first statements."""
    run(
        program("mariadb-install-db"),
        "--no-defaults",
        f"--datadir={folder / 'data'}",
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
        "--skip-name-resolve",
        f"--user={pwd.getpwuid(os.getuid()).pw_name}",
        folder=folder,
    )
    (folder / "first.sql").write_text(
        f"CREATE DATABASE IF NOT EXISTS {USER} CHARACTER SET utf8mb4;\n"
        f"CREATE USER IF NOT EXISTS '{USER}'@'%' IDENTIFIED BY '{PASSWORD}';\n"
        f"GRANT ALL ON *.* TO '{USER}'@'%';\n"
    )


def mariadb(folder: pathlib.Path, port: int) -> Sequence[str]:
    """Without syncs, and with little memory."""
    return [
        program("mariadbd"),
        "--no-defaults",
        f"--datadir={folder / 'data'}",
        f"--user={pwd.getpwuid(os.getuid()).pw_name}",
        f"--port={port}",
        f"--bind-address={HOST}",
        f"--socket={folder / 'socket'}",
        f"--pid-file={folder / 'pid'}",
        f"--init-file={folder / 'first.sql'}",
        "--skip-name-resolve",
        "--innodb-flush-log-at-trx-commit=0",
        "--innodb-buffer-pool-size=16M",
    ]


def redis(folder: pathlib.Path, port: int) -> Sequence[str]:
    """In memory only."""
    config = folder / "redis.conf"
    config.write_text(
        f"bind {HOST}\nport {port}\ndir {folder}\nsave ''\nappendonly no\nrequirepass {PASSWORD}\n"
        "maxclients 200\nset-proc-title no\n"
    )
    return [program("redis-server"), str(config), "--pidfile", str(folder / "pid")]


def prepare_slapd(folder: pathlib.Path) -> None:
    """The configuration of one database."""
    program("slapd")
    (folder / "data").mkdir()
    text = SLAPD_CONF.format(folder=folder, suffix=SUFFIX, password=PASSWORD)
    (folder / "slapd.conf").write_text(text)
    (folder / "first.ldif").write_text(LDIF)
    load = ("-f", str(folder / "slapd.conf"), "-l", str(folder / "first.ldif"))
    run(program("slapadd"), *load, folder=folder)


def slapd(folder: pathlib.Path, port: int) -> Sequence[str]:
    """In the foreground, as `-d` has it."""
    address = f"ldap://{HOST}:{port}"
    return [program("slapd"), "-f", str(folder / "slapd.conf"), "-h", address, "-d", "none"]


SERVERS = (
    Server("postgresql", prepare_postgresql, postgresql, account="postgres"),
    Server("mariadb", prepare_mariadb, mariadb),
    Server("redis", lambda _: None, redis),
    Server("slapd", prepare_slapd, slapd),
)


def account_of(name: str | None) -> str | None:
    """The account that a server runs with; None: that of the tests."""
    return name if os.getuid() == 0 else None


def folder_of(server: Server) -> pathlib.Path:
    """An empty folder for a server, below `.make` if its account can get there."""
    account = account_of(server.account)
    folder = ROOT / server.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if account is None:
        return folder
    shutil.chown(folder, account)
    reached = subprocess.run(  # noqa: S603 - a folder of this file
        ["/bin/ls", str(folder)], user=account, capture_output=True, check=False
    )
    if reached.returncode != 0:
        folder = pathlib.Path(tempfile.mkdtemp(prefix=f"mqttcore-{server.name}-"))
        shutil.chown(folder, account)
    return folder


def start(server: Server) -> Running:
    """Starts a server, and waits until it listens.

    Raises:
        NotInstalledError: it is not on this machine.
        RuntimeError: it did not start.
    """
    folder = folder_of(server)
    server.prepare(folder)
    port = free_port()
    account = account_of(server.account)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(  # noqa: S603 - a program of this file
            server.command(folder, port),
            cwd=folder,
            user=account,
            group=account and pwd.getpwnam(account).pw_gid,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_S
    while not listens(port):
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise RuntimeError(f"{server.name} did not start:\n{(folder / 'log').read_text()}")
        time.sleep(0.05)
    return Running(server.name, process.pid, port, str(folder))


def free_port() -> int:
    """A port of the loopback that nobody listens on."""
    with socket.create_server((HOST, 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def listens(port: int) -> bool:
    """Whether somebody listens on a port of the loopback."""
    try:
        with socket.create_connection((HOST, port), 1.0):
            return True
    except OSError:
        return False
