//! A mounted folder as object storage.

use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use mqttcore_store::stream::Objects;

/// Beginning of the name of an object that is being written.
const UNFINISHED: &str = "_";

/// Objects as files in a folder. An object is safe when `put` returns.
#[derive(Debug)]
pub(crate) struct FolderObjects {
    url: String,
    path: PathBuf,
    is_closed: AtomicBool,
}

impl FolderObjects {
    pub(crate) fn new(url: &str, path: &Path) -> Self {
        Self {
            url: url.to_owned(),
            path: path.to_owned(),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Fails once the objects are closed.
    fn check_open(&self) -> io::Result<()> {
        // ORDERING: a flag alone.
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(io::Error::other("object storage was closed"));
        }
        Ok(())
    }

    /// The path of an object or a folder. The root is never made: it may be in a folder that is not mounted now.
    fn at(&self, name: &str) -> io::Result<PathBuf> {
        self.check_open()?;
        if self.path.is_dir() {
            return Ok(self.path.join(name));
        }
        let text = format!(
            "the folder {} is missing: mount it, or make it if it is new",
            self.path.display()
        );
        // A missing object is another thing.
        Err(io::Error::new(io::ErrorKind::NotConnected, text))
    }

    /// Makes a folder below the root and those above it; their names are safe then.
    fn make_folder(&self, path: &Path) -> io::Result<()> {
        if path.is_dir() || path == self.path {
            return Ok(());
        }
        if let Some(parent) = path.parent() {
            self.make_folder(parent)?;
            match fs::create_dir(path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => File::open(parent)?.sync_all()?,
            }
        }
        Ok(())
    }
}

impl Objects for FolderObjects {
    fn url(&self) -> &str {
        &self.url
    }

    fn put(&self, name: &str, content: &mut dyn Read, _bytes: u64) -> io::Result<()> {
        let path = self.at(name)?;
        let folder = path.parent().unwrap_or(&self.path);
        self.make_folder(folder)?;
        let file_name = path.file_name().unwrap_or_default().to_string_lossy();
        let unfinished = folder.join(format!("{UNFINISHED}{file_name}"));
        let mut file = File::create(&unfinished)?;
        io::copy(content, &mut file)?;
        file.sync_all()?;
        // A call that hung goes on here, perhaps long after a stop.
        self.check_open()?;
        fs::rename(&unfinished, &path)?;
        File::open(folder)?.sync_all()
    }

    fn get(&self, name: &str, part: Range<u64>) -> io::Result<Vec<u8>> {
        let file = File::open(self.at(name)?)?;
        let bytes = part.end.min(file.metadata()?.len());
        let length = usize::try_from(bytes.saturating_sub(part.start));
        let mut content = vec![0; length.map_err(io::Error::other)?];
        file.read_exact_at(&mut content, part.start)?;
        Ok(content)
    }

    fn bytes(&self, name: &str) -> io::Result<u64> {
        Ok(fs::metadata(self.at(name)?)?.len())
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(self.at(folder)?) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut names = Vec::new();
        for entry in entries {
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.at(name)?) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// A call to a folder cannot be ended. One that writes an object does not give it its name any more.
    fn close(&self) {
        // ORDERING: a flag alone.
        self.is_closed.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that goes with the test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("mqttcore-tier-{}-{name}", std::process::id()));
            let _ = fs::create_dir(&path);
            Self(path)
        }

        fn objects(&self) -> FolderObjects {
            FolderObjects::new(&format!("file://{}", self.0.display()), &self.0)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn put(objects: &FolderObjects, name: &str, content: &[u8]) -> io::Result<()> {
        objects.put(name, &mut &*content, content.len() as u64)
    }

    #[test]
    fn an_object_is_read_in_parts_replaced_listed_and_removed() {
        let scratch = Scratch::new("whole");
        let objects = scratch.objects();

        put(&objects, "plant/data/a", b"first").unwrap();
        put(&objects, "plant/data/a", b"0123456789").unwrap();

        assert_eq!(objects.bytes("plant/data/a").unwrap(), 10);
        assert_eq!(objects.get("plant/data/a", 2..5).unwrap(), b"234");
        assert_eq!(objects.get("plant/data/a", 8..99).unwrap(), b"89");
        assert_eq!(objects.list("plant/data").unwrap(), ["a"]);
        objects.remove("plant/data/a").unwrap();
        objects.remove("plant/data/a").unwrap();
        let missing = objects.bytes("plant/data/a").unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        assert!(objects.list("plant/other").unwrap().is_empty());
    }

    #[test]
    fn a_folder_that_is_missing_is_not_made_and_does_not_count_as_empty() {
        let scratch = Scratch::new("missing");
        let objects = scratch.objects();
        fs::remove_dir(&scratch.0).unwrap();

        let told = [
            put(&objects, "plant/data/a", b"first").unwrap_err(),
            objects.get("plant/data/a", 0..1).unwrap_err(),
            objects.bytes("plant/data/a").unwrap_err(),
            objects.list("plant/data").unwrap_err(),
            objects.remove("plant/data/a").unwrap_err(),
        ];

        for error in told {
            assert_eq!(error.kind(), io::ErrorKind::NotConnected);
            assert!(error.to_string().contains("mount it, or make it"));
        }
        assert!(!scratch.0.exists());
    }

    #[test]
    fn an_object_whose_write_lasts_until_the_close_is_not_there() {
        struct Closing<'o>(&'o FolderObjects);
        impl Read for Closing<'_> {
            fn read(&mut self, _buffer: &mut [u8]) -> io::Result<usize> {
                self.0.close();
                Ok(0)
            }
        }
        let scratch = Scratch::new("closed");
        let objects = scratch.objects();
        put(&objects, "a", b"first").unwrap();

        objects.put("a", &mut Closing(&objects), 0).unwrap_err();

        put(&objects, "b", b"later").unwrap_err();
        objects.remove("a").unwrap_err();
        assert_eq!(scratch.objects().get("a", 0..9).unwrap(), b"first");
        let missing = scratch.objects().bytes("b").unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn an_object_that_was_not_written_completely_is_not_there() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _buffer: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
        }
        let scratch = Scratch::new("broken");
        let objects = scratch.objects();

        objects.put("a", &mut Broken, 9).unwrap_err();

        let missing = objects.get("a", 0..9).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        put(&objects, "a", b"whole").unwrap();
        assert_eq!(objects.get("a", 0..9).unwrap(), b"whole");
    }
}
