"""Every row of `docs/abuse.md` against a running broker, beside clients that must not notice."""
