"""The examples of docs/integrations.md run as they are printed."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from adapted import lines

PAGE = Path(__file__).parents[2] / "docs" / "integrations.md"
EXAMPLES = dict(re.findall(r"^## (\w+)$.*?```python\n(.*?)```", PAGE.read_text(), re.DOTALL | re.MULTILINE))


@pytest.mark.parametrize("name", ["Lightning", "transformers", "Accelerate"])
def test_it_writes_a_run(name: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(name.lower()) is None:
        pytest.skip(f"needs worldsize[{name.lower()}]")
    command = [sys.executable, "-c", EXAMPLES[name]]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "worldsize: " not in done.stderr
    assert [step["samples"] for step in lines(tmp_path / "runs" / f"with-{name.lower()}")] == [8] * 8
