"""Other logs with a server, and braidlog's own, driven alike: what the figures named `service_*` compare.

A module for each system installs its server (once, into a cache outside the project), runs it on a free port in an
empty folder, and has a driver. All drivers do the same work (`driver.Driver`): the same records, in batches of the same
bytes, with the same bytes in flight, over one connection of the client library that the system's users would take. Each
says in one sentence what an acknowledgement of its server promises.

`python -m bench.peers` installs whatever can be installed here, and says what is missing.
"""
