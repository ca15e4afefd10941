"""Built-in plugins, one file each. Nothing here runs unless the configuration names it."""
