//! Damaged files are set aside: they keep their content under another name.

use crate::error::StoreError;
use crate::files::Files;
use crate::files::copy_file;

/// Gives a damaged file another name, which it returns.
pub(crate) fn rename(files: &dyn Files, name: &str) -> Result<String, StoreError> {
    let aside = free_name(files, name)?;
    let renamed = files.rename(name, &aside).and_then(|()| files.sync_names());
    renamed.map_err(|error| StoreError::io("set aside", name, error))?;
    Ok(aside)
}

/// Keeps a damaged file under another name, which it returns; the first name stays until another file takes it.
pub(crate) fn keep(files: &dyn Files, name: &str) -> Result<String, StoreError> {
    let aside = free_name(files, name)?;
    let kept = files.link(name, &aside).or_else(|_| {
        // The file system knows no second name, or says so in its own way.
        copy_file(&*files.open(name)?, files, &aside, u64::MAX).map(drop)
    });
    let kept = kept.and_then(|()| files.sync_names());
    kept.map_err(|error| StoreError::io("set aside", name, error))?;
    Ok(aside)
}

fn free_name(files: &dyn Files, name: &str) -> Result<String, StoreError> {
    let names = files.list();
    let names = names.map_err(|error| StoreError::io("list", ".", error))?;
    let free = |aside: &String| !names.contains(aside);
    let numbered = (2..).map(|number| format!("{name}.damaged{number}"));
    let mut all = std::iter::once(format!("{name}.damaged")).chain(numbered);
    // INVARIANT: a folder has fewer files than there are numbers.
    Ok(all.find(free).expect("a free name"))
}
