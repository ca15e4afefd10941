"""Real servers for the tests of plugins: PostgreSQL, MariaDB, Redis and OpenLDAP of this machine.

`make services-up` starts those that are installed, each with a folder of its own below `.make`, on
a free port of the loopback; tests that need another one are skipped and say which.
"""
