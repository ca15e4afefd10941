"""Built-in plugins, one file each. They run only if the configuration names them."""
