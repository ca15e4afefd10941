//! Embeds the files of the page: each as it is and compressed, below a folder whose name is a hash of all of them.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use flate2::{Compression, GzBuilder};

/// The folder of the page's sources.
const SOURCES: &str = "page";
/// What `index.html` has in place of the folder's name.
const PLACEHOLDER: &str = "{folder}";

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed={SOURCES}");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let mut files = Vec::new();
    collect(Path::new(SOURCES), &mut files)?;
    files.sort();
    let mut hash = Fnv::new();
    for file in &files {
        hash.add(name(file).as_bytes());
        hash.add(&fs::read(file)?);
    }
    let folder = format!("{:016x}", hash.0);
    let mut table = format!("pub(super) const FOLDER: &str = {folder:?};\n");
    table.push_str("pub(super) const FILES: &[PageFile] = &[\n");
    for (number, file) in files.iter().enumerate() {
        let mut content = fs::read(file)?;
        if is_own_script(file) {
            let text = String::from_utf8(content).map_err(io::Error::other)?;
            content = without_comments(&text).into_bytes();
        }
        if name(file) == "index.html" {
            let text = String::from_utf8(content).map_err(io::Error::other)?;
            content = text.replace(PLACEHOLDER, &folder).into_bytes();
        }
        fs::write(out.join(format!("{number}.plain")), &content)?;
        fs::write(out.join(format!("{number}.gz")), compressed(&content)?)?;
        table.push_str(&entry(number, &name(file), media_type(file)?));
    }
    table.push_str("];\n");
    fs::write(out.join("page_files.rs"), table)
}

/// Whether a file is a script of this project, not of a library.
fn is_own_script(file: &Path) -> bool {
    let is_script = file.extension().is_some_and(|kind| kind == "js");
    is_script && !name(file).starts_with("vendor/")
}

/// A script without the lines that are comments: they are a twentieth of what a browser would load.
fn without_comments(text: &str) -> String {
    let (mut kept, mut is_inside) = (String::new(), false);
    for line in text.lines() {
        let code = line.trim();
        is_inside |= code.starts_with("/**");
        if !is_inside && !code.starts_with("//") {
            kept.push_str(line);
            kept.push('\n');
        }
        is_inside &= !code.ends_with("*/");
    }
    kept
}

/// A line of the table of files.
fn entry(number: usize, name: &str, kind: &str) -> String {
    let [plain, gzip] = ["plain", "gz"].map(|form| format!("include_bytes!(\"{number}.{form}\")"));
    format!("PageFile {{ name: {name:?}, media_type: {kind:?}, plain: {plain}, gzip: {gzip} }},\n")
}

/// The files below a folder.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

/// The path below the folder of the page.
fn name(file: &Path) -> String {
    let below = file.strip_prefix(SOURCES).unwrap_or(file);
    below.to_string_lossy().into_owned()
}

fn media_type(file: &Path) -> io::Result<&'static str> {
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("html") => Ok("text/html; charset=utf-8"),
        Some("js") => Ok("text/javascript; charset=utf-8"),
        Some("css") => Ok("text/css; charset=utf-8"),
        Some("svg") => Ok("image/svg+xml"),
        Some("txt") => Ok("text/plain; charset=utf-8"),
        _ => Err(io::Error::other(format!(
            "{}: unknown kind of file",
            file.display()
        ))),
    }
}

/// Compresses without a time stamp, so that the same sources make the same program.
fn compressed(content: &[u8]) -> io::Result<Vec<u8>> {
    let mut writer = GzBuilder::new().write(Vec::new(), Compression::best());
    writer.write_all(content)?;
    writer.finish()
}

/// FNV-1a, 64 bits: names a version of the page, and protects from nobody.
struct Fnv(u64);

impl Fnv {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        // Separates a name from the content behind it.
        self.0 = (self.0 ^ 0xff).wrapping_mul(0x0100_0000_01b3);
    }
}
