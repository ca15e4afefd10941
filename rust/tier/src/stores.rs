//! S3, Azure and Google Cloud Storage by the crate `object_store`.

use std::io::{self, Read};
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

use futures_util::TryStreamExt;
use mqttcore_store::stream::Objects;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::path::Path;
use object_store::{
    BackoffConfig, MultipartUpload, ObjectStore, ObjectStoreExt, ObjectStoreScheme, RetryConfig,
};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use url::Url;

/// Size of a part of an upload; an object of up to one part is written by one request.
const PART_BYTES: u64 = 8 << 20;

/// A request is tried again for so long. After an error the caller waits and begins again.
const RETRY: RetryConfig = RetryConfig {
    backoff: BackoffConfig {
        init_backoff: Duration::from_millis(100),
        max_backoff: Duration::from_secs(2),
        base: 2.0,
    },
    max_retries: 3,
    retry_timeout: Duration::from_secs(20),
};

/// Bounds of a request, unless options say otherwise.
const TIMES: [(&str, &str); 2] = [("connect_timeout", "5 seconds"), ("timeout", "30 seconds")];

/// Objects below a prefix of an object store.
#[derive(Debug)]
pub(crate) struct StoreObjects {
    url: String,
    /// The endpoint, if the options or the environment name one.
    endpoint: Option<String>,
    store: Box<dyn ObjectStore>,
    prefix: Path,
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
    /// True once calls are to end.
    closed: watch::Sender<bool>,
}

impl StoreObjects {
    pub(crate) fn open(url: &str, options: &[(String, String)]) -> Result<Self, String> {
        // Another part of the process may have chosen one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let parsed = Url::parse(url).map_err(|error| error.to_string())?;
        let (scheme, prefix) =
            ObjectStoreScheme::parse(&parsed).map_err(|error| error.to_string())?;
        let store = store(&scheme, url, options)?;
        let runtime = Builder::new_current_thread().enable_all().build();
        Ok(Self {
            url: url.to_owned(),
            endpoint: endpoint(&scheme, options),
            store,
            prefix,
            runtime: Some(runtime.map_err(|error| error.to_string())?),
            closed: watch::Sender::new(false),
        })
    }

    fn path(&self, name: &str) -> Path {
        name.split('/').fold(self.prefix.clone(), Path::join)
    }

    /// Waits for a call, until the objects are closed.
    fn wait<T>(&self, call: impl Future<Output = object_store::Result<T>>) -> io::Result<T> {
        let mut closed = self.closed.subscribe();
        // INVARIANT: it goes only when nobody can call.
        let runtime = self.runtime.as_ref().expect("a runtime");
        runtime.block_on(async {
            tokio::select! {
                done = call => done.map_err(io::Error::from),
                _ = closed.wait_for(|is_closed| *is_closed) => Err(io::ErrorKind::Interrupted.into()),
            }
        })
    }

    fn put_parts(&self, path: &Path, content: &mut dyn Read) -> io::Result<()> {
        let mut upload = self.wait(self.store.put_multipart(path))?;
        let written = self.write_parts(&mut *upload, content);
        if written.is_err() {
            // Parts that stay are for the lifecycle rules of the bucket.
            let _ = self.wait(upload.abort());
        }
        written
    }

    fn write_parts(
        &self,
        upload: &mut dyn MultipartUpload,
        content: &mut dyn Read,
    ) -> io::Result<()> {
        loop {
            let mut part = Vec::new();
            content.take(PART_BYTES).read_to_end(&mut part)?;
            if part.is_empty() {
                return self.wait(upload.complete()).map(|_| ());
            }
            self.wait(upload.put_part(part.into()))?;
        }
    }
}

impl Drop for StoreObjects {
    fn drop(&mut self) {
        // The last reader may be a task of another runtime, where waiting for this one is not allowed.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Objects for StoreObjects {
    fn url(&self) -> &str {
        &self.url
    }

    fn place(&self) -> String {
        match &self.endpoint {
            Some(endpoint) => format!("{} at {endpoint}", self.url),
            None => self.url.clone(),
        }
    }

    fn put(&self, name: &str, content: &mut dyn Read, bytes: u64) -> io::Result<()> {
        let path = self.path(name);
        if bytes > PART_BYTES {
            return self.put_parts(&path, content);
        }
        let mut whole = Vec::new();
        content.read_to_end(&mut whole)?;
        self.wait(self.store.put(&path, whole.into())).map(|_| ())
    }

    fn get(&self, name: &str, part: Range<u64>) -> io::Result<Vec<u8>> {
        if part.is_empty() {
            return Ok(Vec::new());
        }
        let path = self.path(name);
        Ok(self.wait(self.store.get_range(&path, part))?.into())
    }

    fn bytes(&self, name: &str) -> io::Result<u64> {
        let path = self.path(name);
        Ok(self.wait(self.store.head(&path))?.size)
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let path = self.path(folder);
        let found = self.wait(self.store.list(Some(&path)).try_collect::<Vec<_>>())?;
        let names = found.iter().filter_map(|object| object.location.filename());
        Ok(names.map(str::to_owned).collect())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let path = self.path(name);
        match self.wait(self.store.delete(&path)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn close(&self) {
        self.closed.send_replace(true);
    }
}

/// The store of a URL.
fn store(
    scheme: &ObjectStoreScheme,
    url: &str,
    options: &[(String, String)],
) -> Result<Box<dyn ObjectStore>, String> {
    let text = |error: object_store::Error| error.to_string();
    match scheme {
        ObjectStoreScheme::AmazonS3 => {
            let mut builder = AmazonS3Builder::new().with_url(url).with_retry(RETRY);
            for (key, value) in known::<AmazonS3ConfigKey>(options, "AWS_")? {
                builder = builder.with_config(key, value);
            }
            Ok(Box::new(builder.build().map_err(text)?))
        }
        ObjectStoreScheme::MicrosoftAzure => {
            let mut builder = MicrosoftAzureBuilder::new().with_url(url).with_retry(RETRY);
            for (key, value) in known::<AzureConfigKey>(options, "AZURE_")? {
                builder = builder.with_config(key, value);
            }
            Ok(Box::new(builder.build().map_err(text)?))
        }
        ObjectStoreScheme::GoogleCloudStorage => {
            let builder = GoogleCloudStorageBuilder::new();
            let mut builder = builder.with_url(url).with_retry(RETRY);
            for (key, value) in known::<GoogleConfigKey>(options, "GOOGLE_")? {
                builder = builder.with_config(key, value);
            }
            Ok(Box::new(builder.build().map_err(text)?))
        }
        _ => Err("it is no URL of S3, Azure or Google Cloud Storage".to_owned()),
    }
}

/// The endpoint that `options` or else the environment name, for messages.
fn endpoint(scheme: &ObjectStoreScheme, options: &[(String, String)]) -> Option<String> {
    let is_endpoint = |name: &str| {
        let name = name.to_ascii_lowercase();
        name.ends_with("endpoint") || name.ends_with("endpoint_url")
    };
    let given = options.iter().rev().find(|(name, _)| is_endpoint(name));
    let given = given.map(|(_, value)| value.clone());
    let names: &[&str] = match scheme {
        ObjectStoreScheme::AmazonS3 => &["AWS_ENDPOINT_URL", "AWS_ENDPOINT"],
        ObjectStoreScheme::MicrosoftAzure => &["AZURE_STORAGE_ENDPOINT"],
        _ => &[],
    };
    given.or_else(|| names.iter().find_map(|name| std::env::var(name).ok()))
}

/// The settings of a builder: bounds of a request, the environment, then `options`. Names in the environment that it does
/// not know are left out, as those of other programs.
///
/// # Errors
///
/// It does not know one of `options`.
fn known<K: FromStr>(
    options: &[(String, String)],
    prefix: &str,
) -> Result<Vec<(K, String)>, String> {
    let times = TIMES.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let environment = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        name.starts_with(prefix).then_some(())?;
        Some((name, value.into_string().ok()?))
    });
    let all = times.into_iter().chain(environment);
    let all = all.filter_map(|(name, value)| Some((key(&name, prefix)?, value)));
    let mut known: Vec<_> = all.collect();
    for (name, value) in options {
        let unknown = || {
            format!(
                "storage has {name}, which is no option of this store: correct or remove it; names begin with {prefix}"
            )
        };
        known.push((key(name, prefix).ok_or_else(unknown)?, value.clone()));
    }
    Ok(known)
}

/// The setting of a name; `aws_allow_http` and `allow_http` are the same.
fn key<K: FromStr>(name: &str, prefix: &str) -> Option<K> {
    let name = name.to_ascii_lowercase();
    let short = name.strip_prefix(&prefix.to_ascii_lowercase());
    name.parse().ok().or_else(|| short?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_that_the_store_does_not_know_is_refused_by_name() {
        for (url, known, unknown) in [
            ("s3://bucket/prefix", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_ULR"),
            ("gs://bucket", "GOOGLE_SERVICE_ACCOUNT_KEY", "AWS_REGION"),
            (
                "az://container",
                "AZURE_STORAGE_ACCOUNT_NAME",
                "ACOUNT_NAME",
            ),
        ] {
            let option = |name: &str| (name.to_owned(), "secret".to_owned());
            let told = StoreObjects::open(url, &[option(known), option(unknown)]).unwrap_err();
            assert!(told.contains(&format!("storage has {unknown}, ")), "{told}");
            assert!(!told.contains("secret"), "{told}");
        }
        let options = [
            ("AWS_ENDPOINT_URL", "http://127.0.0.1:9"),
            ("aws_allow_http", "true"),
            ("region", "eu-central-1"),
        ];
        let options = options.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let objects = StoreObjects::open("s3://bucket/prefix", &options).unwrap();
        assert_eq!(objects.place(), "s3://bucket/prefix at http://127.0.0.1:9");
    }
}
