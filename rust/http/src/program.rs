//! The program that runs the broker: it knows where the configuration comes from.

/// Functions of the program for operators.
pub trait Program: Send + Sync {
    /// Does `action` and returns its result as JSON. Blocks until it is done.
    ///
    /// The actions: `config` lists the configuration in force as `[{"key", "value", "source"}]`; `check` reads the
    /// configuration in the text `argument`, or the one that a reload would read if it is empty, and returns `{"errors",
    /// "warnings", "changed", "needs_restart"}`; `risks` lists the risks of the configuration in force as `[{"code", "text", "fix"}]`; `reload` returns `{"changed", "needs_restart"}`; `invalidate` invalidates the rights
    /// of the clients in `{"client_id", "username", "everything"}` and returns how many are `{"connected"}`; `reload_plugin` has the
    /// plugin named `argument` read its files again and returns `{"changed_users"}`; `try_acl_file` compares the text in
    /// `{"acl_file", "sessions": [[client_id, username, [filter]]]}` with the ACL file in use and returns `{"errors",
    /// "warnings", "changed": [client_id], "changes", "has_more"}`.
    ///
    /// # Errors
    ///
    /// Why it is not done; nothing has changed then.
    fn call(&self, action: &str, argument: &str) -> Result<String, String>;
}
