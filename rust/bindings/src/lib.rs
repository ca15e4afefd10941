//! `mqttcore._core`: the broker as Python sees it. Conversions only; no broker logic.
#![warn(missing_docs)]

mod answers;
mod broker;
mod certificates;
mod codec;
mod columns;
mod config;
mod directory;
mod error;
mod grants;
mod hash_memory;
mod hooks;
mod message;
mod operators;
mod passwords;
mod plugin;
mod process;
#[cfg(feature = "streams")]
mod publisher;
mod rows;
mod settings;
mod store;
mod store_records;
mod store_writer;
#[cfg(feature = "streams")]
mod stream;
mod subscribe;
mod topic_settings;
mod topics;

/// The two blocks of the runtime for each connection lie side by side, not among those of malloc (ADR 0137).
#[global_allocator]
static ALLOCATOR: mqttcore_broker::ProgramAllocator = mqttcore_broker::ProgramAllocator;

/// Native half of mqttcore. Import from `mqttcore`, not from here.
#[pyo3::pymodule]
mod _core {
    /// The version of the package, without a look at its metadata.
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "the name that Python expects")]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    /// Whether the broker has streams and their endpoint, and Spark its reader; else it serves MQTT only.
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "the name that Python expects")]
    const has_streams: bool = cfg!(feature = "streams");

    /// Whether sealed files of streams can move to S3, Azure and Google Cloud Storage.
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "the name that Python expects")]
    const has_object_stores: bool = cfg!(feature = "tier");

    /// Whether streams can have Kafka as their log.
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "the name that Python expects")]
    const has_kafka: bool = cfg!(feature = "kafka");

    /// Whether the way to Kafka can have TLS and SASL.
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "the name that Python expects")]
    const has_kafka_tls: bool = cfg!(feature = "kafka-tls");

    #[pymodule_export]
    use super::broker::{PyEngine, PyMessageProperties, PySession};
    #[pymodule_export]
    use super::certificates::make_certificates;
    #[pymodule_export]
    use super::codec::{decode_packet, encode_packet, reason_text};
    #[pymodule_export]
    use super::config::{PyTomlValue, parse_toml};
    #[pymodule_export]
    use super::directory::{PyDirectory, PyMatch, PyMatches};
    #[pymodule_export]
    use super::error::{
        MqttError, PasswordHashError, StartError, StoppedError, StoreError, TopicFilterError,
        TopicNameError,
    };
    #[pymodule_export]
    use super::grants::grant_allows;
    #[pymodule_export]
    use super::hooks::{PyHookCounters, PyHookQueues, PyNotifications, PyQuestion};
    #[pymodule_export]
    use super::message::PyMessage;
    #[pymodule_export]
    use super::passwords::{check_password_hash, hash_password, verify_password};
    #[pymodule_export]
    use super::plugin::{PyAsk, PyClient, PyClientCertificate, PyEvent, PyLogin};
    #[pymodule_export]
    use super::process::{disable_core_files, keep_freed_memory};
    #[cfg(feature = "streams")]
    #[pymodule_export]
    use super::publisher::PyPublisher;
    #[pymodule_export]
    use super::settings::memory_budget;
    #[pymodule_export]
    use super::store::{
        PyCopyProgress, is_stream_name, store_backup, store_dump, store_info, store_repair,
        store_seal, store_verify,
    };
    #[pymodule_export]
    use super::store_writer::{PyStoreWriter, store_create};
    #[cfg(feature = "streams")]
    #[pymodule_export]
    use super::stream::{
        PyStreamBatch, PyStreamDecoder, PyStreamOptions, PyStreamReader, PyStreamSchema,
        read_stream_file_meta, write_stream_file,
    };
    #[pymodule_export]
    use super::subscribe::{PySubscribe, PySubscribeEntry};
    #[pymodule_export]
    use super::topics::{PyTopicFilter, PyTopicName, check_grant_rule, check_mount_point};
}
