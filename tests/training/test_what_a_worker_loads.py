"""Each worker of each cell is a process of its own: what it loads is paid for as often as there are workers."""

import subprocess
import sys

FOR_REPORTS = {"scipy", "polars", "altair", "jinja2", "sklearn"}
"""Some of them take as long to load as a third of torch."""


def test_a_worker_loads_nothing_that_only_the_analysis_needs() -> None:
    code = "import sys, worldsize.launch.worker, worldsize.training.rank; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "torch" in loaded
    assert sorted(FOR_REPORTS & set(loaded)) == []
