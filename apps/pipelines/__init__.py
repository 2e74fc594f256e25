"""Data pipelines in PySpark that run on a log and, unchanged, on any fork of it.

A pipeline is a function from a DataFrame of records to a DataFrame of rows. `python -m apps.pipelines.<name> --help`.
"""
