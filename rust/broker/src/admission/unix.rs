//! Unix sockets: binds one with its permissions, replaces that of a dead process, and removes it at the end.

use std::fs::{self, DirBuilder, File, Permissions, TryLockError};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::UnixStream;

use crate::config::{Peer, UnixAddress};

/// Listens at `address`. The socket gets its permissions in a folder that only this user can enter, and is then moved
/// to its path, so nobody can connect before.
///
/// A socket at the path at which no process listens is replaced. The path may be longer than a socket address allows;
/// clients may need a shorter one.
///
/// # Errors
///
/// [`io::ErrorKind::AddrInUse`] if a process listens there; [`io::ErrorKind::AlreadyExists`] if the path is another
/// kind of file; those of the file system.
pub fn bind_unix(address: &UnixAddress) -> io::Result<UnixListener> {
    let folder = PrivateFolder::make(&address.path)?;
    check_free(&address.path)?;
    let file = folder.socket();
    let listener = UnixListener::bind(&file)?;
    listener.set_nonblocking(true)?;
    if address.group.is_some() {
        chown(&file, None, address.group)?;
    }
    fs::set_permissions(&file, Permissions::from_mode(address.mode))?;
    fs::rename(&file, &address.path)?;
    Ok(listener)
}

/// Rejects a path that is not a socket, or at which a process listens.
///
/// # Errors
///
/// As [`bind_unix`].
fn check_free(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if !found.file_type().is_socket() {
        let text = "the path is a file that is not a socket; remove it, or use another path";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    let folder = File::open(path.parent().unwrap_or(Path::new("/")))?;
    let short = shortened(path, &folder);
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // Do not block if the listening process does not accept.
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::unix(short)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => Err(in_use()),
    }
}

fn in_use() -> io::Error {
    let text = "the socket is in use: another process listens there, or is about to";
    io::Error::new(io::ErrorKind::AddrInUse, text)
}

/// Maximum bytes of the path of a socket, with the zero byte at its end.
const PATH_BYTES: usize = 108;

/// The path of a socket in an open folder; through `/proc` if the path is too long for a socket address.
fn shortened(path: &Path, folder: &File) -> PathBuf {
    if path.as_os_str().len() < PATH_BYTES {
        return path.to_owned();
    }
    let folder = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
    folder.join(path.file_name().unwrap_or_default())
}

/// A locked folder beside a socket that only this user can enter; removed when it is dropped.
struct PrivateFolder {
    path: PathBuf,
    /// Holds the lock: of two brokers that start at once, one is refused.
    open: File,
}

impl PrivateFolder {
    /// Creates the folder; replaces one that a dead process has left.
    fn make(socket: &Path) -> io::Result<Self> {
        let mut path = socket.as_os_str().to_owned();
        path.push(".new");
        let path = PathBuf::from(path);
        match Self::make_new(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                drop(Self::lock(&path)?);
                Self::make_new(&path)
            }
            made => made,
        }
    }

    fn make_new(path: &Path) -> io::Result<Self> {
        DirBuilder::new().mode(0o700).create(path)?;
        Self::lock(path)
    }

    fn lock(path: &Path) -> io::Result<Self> {
        let open = File::open(path)?;
        open.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => in_use(),
            TryLockError::Error(error) => error,
        })?;
        // A process that started at the same time may have replaced the folder before it was locked.
        let (locked, named) = (open.metadata()?, fs::symlink_metadata(path)?);
        if Inode::of(&locked) != Inode::of(&named) {
            return Err(in_use());
        }
        let path = path.to_owned();
        Ok(Self { path, open })
    }

    fn socket(&self) -> PathBuf {
        shortened(&self.path.join("socket"), &self.open)
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        // Files that stay are replaced at the next start.
        let _ = fs::remove_file(self.socket());
        let _ = fs::remove_dir(&self.path);
    }
}

/// The number of a file on its file system.
#[derive(Eq, PartialEq)]
struct Inode(u64, u64);

impl Inode {
    fn of(file: &fs::Metadata) -> Self {
        Self(file.dev(), file.ino())
    }
}

/// The file of a bound socket; removed when this is dropped, unless another socket has taken its place.
pub(crate) struct SocketFile {
    path: PathBuf,
    inode: Inode,
}

impl SocketFile {
    /// The file at `path`, of a socket that was just bound.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        let inode = Inode::of(&fs::symlink_metadata(path)?);
        let path = path.to_owned();
        Ok(Self { path, inode })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let found = fs::symlink_metadata(&self.path);
        if found.is_ok_and(|found| Inode::of(&found) == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The accepted stream and its peer.
///
/// It becomes a TCP stream, so that all connections have one type: reads, writes and `shutdown` are the same system
/// calls for each kind of stream socket. Calls of TCP alone (`peer_addr`, `set_nodelay`) fail on it.
///
/// # Errors
///
/// The error of the operating system; a peer without a user is rejected.
pub(crate) fn accepted(stream: UnixStream) -> io::Result<(std::net::TcpStream, Peer)> {
    let uid = stream.peer_cred()?.uid();
    let descriptor = OwnedFd::from(stream.into_std()?);
    Ok((descriptor.into(), Peer::Unix { uid }))
}
