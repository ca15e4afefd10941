"""Reads TOML, environment and flags, and validates them: `Settings`.

Later ones win: defaults, file, environment (``MQTTCORE__LISTENERS__0__ADDRESS``), flags. Everything
that is wrong is reported at once, each fault with its place, its key, what is allowed and, for a
misspelt word, what was probably meant. The keys of the file are the fields of these classes.
"""

from mqttcore.config.parts import (
    Access,
    CertificateFiles,
    HttpListener,
    Listener,
    LogOutput,
    Metrics,
    PluginUse,
    ServerLimits,
    Tls,
    TopicMetric,
    TopicRule,
)
from mqttcore.config.reading import Origin, load
from mqttcore.config.settings import Settings

__all__ = [
    "Access",
    "CertificateFiles",
    "HttpListener",
    "Listener",
    "LogOutput",
    "Metrics",
    "Origin",
    "PluginUse",
    "ServerLimits",
    "Settings",
    "Tls",
    "TopicMetric",
    "TopicRule",
    "load",
]
