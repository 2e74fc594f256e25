"""A deterministic simulation of a whole cluster: the production code under a clock, a network and disks of our own.

`python -m sim --seed 7` plays one run. The same seed gives the same run, byte for byte.
"""
