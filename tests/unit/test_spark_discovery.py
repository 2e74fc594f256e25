"""How PySpark finds the format, what that costs, and what is said where PySpark is missing."""

from __future__ import annotations

import subprocess
import sys


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)


def test_finding_the_format_imports_nothing_of_ours() -> None:
    done = run(
        "import sys, pyspark_braidlog as found\n"
        "assert found.DefaultSource.name() == 'braidlog'\n"
        "assert 'braidlog' not in sys.modules and 'pyarrow' not in sys.modules, 'too much'"
    )
    assert done.returncode == 0, done.stderr


def test_without_pyspark_the_search_does_not_fail_and_the_package_says_what_to_do() -> None:
    done = run(
        "import sys\n"
        "sys.modules['pyspark'] = None\n"
        "import pyspark_braidlog\n"
        "assert not hasattr(pyspark_braidlog, 'DefaultSource')\n"
        "import braidlog.bulk\n"
        "import braidlog.spark"
    )
    assert 'ImportError: braidlog.spark needs PySpark: pip install "braidlog[spark]"' in done.stderr
    assert done.stderr.count("Traceback") == 1
