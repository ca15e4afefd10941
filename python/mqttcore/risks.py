"""Risks of a configuration on this machine, and their remedies: a rule for each.

`mqttcore doctor` prints them before a start, and the HTTP endpoint shows those of a running broker.
"""

import ctypes
import ipaddress
import os
import pathlib
import resource
import stat
import time
from collections.abc import Iterator, Sequence
from typing import Final

from mqttcore._record import Record
from mqttcore._schema import Table, beside
from mqttcore.config import HttpListener, Listener, Settings
from mqttcore.config.values import is_loopback

SPARE_DESCRIPTORS: Final = 64
"""Descriptors for files, listeners and pipes of the broker itself."""

DISK_FREE: Final = 0.1
"""The share of the disk below which a data folder counts as short of space."""

GIB: Final = 1 << 30

TIME_ERROR: Final = 5
"""Result of adjtimex for a clock that is not synchronized (<sys/timex.h>)."""

TIMEX_BYTES: Final = 512
"""More than the size of ``struct timex``; all zeros only query the clock."""

BUILT: Final = 1_760_000_000
"""A time before this version; a clock with an earlier time is wrong."""

REMOTE: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs"})
"""File systems on other machines."""


class Risk(Record, kw_only=False):
    """A risk, and its remedy."""

    subject: str
    """The area: ``listener``, ``http``, ``tls``, ``files``, ``disk``, ``limits``, ``clock`` or
    ``process``."""
    what: str
    """The finding and its place."""
    remedy: str
    """The remedy."""
    path: str | None = None
    """The file or folder that `what` names."""

    @property
    def view_text(self) -> str:
        """`what` with only the last part of the path, for callers without the scope ``admin``."""
        if self.path is None:
            return self.what
        return self.what.replace(self.path, pathlib.Path(self.path).name or self.path)


def find_risks(settings: Settings) -> Iterator[Risk]:
    """Risks of a broker with these settings, without those that its start warns about."""
    for listener in settings.listeners:
        yield from listener_risks(listener)
        yield from exempt_risks(listener, settings.limits.exempt_addresses)
    if settings.http:
        yield from http_risks(settings.http)
    for use in settings.plugins:
        yield from plugin_risks(use.use, use.table)
    yield from descriptor_risks(settings.limits.connections)
    if settings.data:
        yield from data_risks(pathlib.Path(settings.data))
    yield from clock_risks(time.time())
    if os.geteuid() == 0:
        yield Risk("process", "the user of the broker is root", "run it as a user of its own")


def listener_risks(listener: Listener) -> Iterator[Risk]:
    """Risks of a listener: access without login, no encryption."""
    where = f"listener {listener.title}"
    if "*" in listener.origins:
        what = f"{where}: every web page may connect (origins has '*')"
        yield Risk("listener", what, "name the origins of your pages")
    if listener.unix_socket:
        path, mode, _ = listener.unix_socket
        if listener.access and mode & stat.S_IWOTH:
            what = f"{where}: any user of this machine may connect to {path} without a login"
            yield Risk("listener", what, 'set mode = "0660", and a group')
        return
    if is_loopback(listener.address):
        return
    if listener.access:
        what = f"{where}: clients without a login may connect from other machines"
        yield Risk("listener", what, "use a plugin that authenticates, and anonymous = false")
    if listener.tls is None:
        what = f"{where}: passwords and messages are not encrypted"
        yield Risk("listener", what, "add [listeners.tls]")


def exempt_risks(listener: Listener, exempt: Sequence[str]) -> Iterator[Risk]:
    """Clients of other machines without limits by user or address."""
    remote = [text for text in exempt if not ipaddress.ip_network(text).is_loopback]
    if not remote or not listener.access or is_loopback(listener.address):
        return
    what = (
        f"listener {listener.title}: clients without a login at {', '.join(remote)}"
        " (exempt_addresses) have no rates and no shares"
    )
    remedy = "use a plugin that authenticates, or PROXY headers (proxy_from) and no exemption"
    yield Risk("listener", what, remedy)


def http_risks(http: HttpListener) -> Iterator[Risk]:
    """The HTTP endpoint."""
    if not http.address or is_loopback(http.address):
        return
    if http.tls is None:
        what = f"http {http.address}: the token and the rows are not encrypted"
        yield Risk("http", what, "add [http.tls]")
    if http.metrics_access == "open":
        what = f"http {http.address}: metrics can be read without a token"
        yield Risk("http", what, 'set metrics = "token"')


def plugin_risks(name: str, table: Table) -> Iterator[Risk]:
    """Files that a plugin's configuration names and that other users may read or change."""
    keys = table.entry.value
    for key, entry in keys.items() if isinstance(keys, dict) else ():
        if not isinstance(entry.value, str):
            continue
        path = beside(entry.place, pathlib.Path(entry.value))
        mode = stat.S_IMODE(path.stat().st_mode) if path.is_file() else 0
        if mode & (stat.S_IROTH | stat.S_IWOTH):
            may = "change" if mode & stat.S_IWOTH else "read"
            what = f"plugin {name}: {key}: any user may {may} {path} (mode {mode:04o})"
            yield Risk("files", what, "chmod o-rw it", str(path))


def descriptor_risks(connections: int) -> Iterator[Risk]:
    """Checks the limit of descriptors: each connection needs one."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < connections + SPARE_DESCRIPTORS:
        what = f"{soft} descriptors, but limits.connections is {connections}"
        remedy = f"ulimit -n {connections + SPARE_DESCRIPTORS} (LimitNOFILE of systemd)"
        yield Risk("limits", what, f"{remedy}, or lower limits.connections")


def data_risks(folder: pathlib.Path) -> Iterator[Risk]:
    """Risks of the data folder: permissions and space."""
    path = str(folder)
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.is_dir())
    if there == folder.absolute():
        mode = stat.S_IMODE(there.stat().st_mode)
        if mode & (stat.S_IRWXO | stat.S_IRWXG):
            what = f"data folder {folder}: other users may look into it (mode {mode:04o})"
            yield Risk("files", what, "chmod 700 it", path)
    disk = os.statvfs(there)
    if disk.f_bavail < disk.f_blocks * DISK_FREE:
        percent, left = 100 * disk.f_bavail // disk.f_blocks, disk.f_bavail * disk.f_frsize / GIB
        what = f"data folder {folder}: {percent} % of the disk is free ({left:.1f} GiB)"
        yield Risk("disk", what, "make room, or use a larger disk", path)
    if disk.f_files and disk.f_favail < disk.f_files * DISK_FREE:
        what = f"data folder {folder}: {disk.f_favail} inodes are free"
        yield Risk("disk", what, "remove files, or use another disk", path)
    kind = file_system(there)
    if kind == "tmpfs":
        what = f"data folder {folder}: it is in memory (tmpfs), whatever durability says"
        yield Risk("disk", what, "use a folder on a disk", path)
    elif kind in REMOTE:
        what = f"data folder {folder}: it is on another machine ({kind})"
        remedy = "use a local disk: the network decides what a sync means there"
        yield Risk("disk", what, remedy, path)


def file_system(path: pathlib.Path) -> str:
    """The type of the file system of ``path``, such as ``ext4``; empty if it is unknown."""
    try:
        lines = pathlib.Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    device = path.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in lines:
        mount, _, rest = line.partition(" - ")
        if mount.split()[2] == wanted:
            return rest.split()[0]
    return ""


def clock_risks(now: float) -> Iterator[Risk]:
    """Checks the clock: expiry counts the time that the broker was down by it."""
    if now < BUILT:
        what = f"the system clock says {time.strftime('%Y-%m-%d', time.gmtime(now))}"
        yield Risk("clock", what, "set it: session and message expiry depend on it")
    elif not is_synchronized():
        what = "nothing synchronizes the system clock"
        yield Risk("clock", what, "run chronyd, ntpd or systemd-timesyncd")


def is_synchronized() -> bool:
    """Whether the kernel reports a synchronized clock; true if that is unknown."""
    try:
        answer: int = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(TIMEX_BYTES))
    except (AttributeError, OSError):
        return True
    return answer != TIME_ERROR
