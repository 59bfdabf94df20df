"""The gate between two scripts of one study: does it cry wolf, and does it sleep?

What compare_aa.py asks of runs one after the other, asked of old and new in turn (method.md §13): of 20 studies of a
script beside itself at most one fails; of 20 beside one that is 10 % slower at least 19 do.
"""

import tempfile
from pathlib import Path
from typing import Any

import worldsize
from common import keep, say
from worldsize.analysis.script_gate import gate
from worldsize.launch.warm import WARM

STUDIES = 20
BUDGET = "45s"
LIMIT = 0.05
SCRIPT = str(Path(__file__).parent / "gated_script.py")
NEW = {"same": f"{SCRIPT} --slower 0", "slow": f"{SCRIPT} --slower 0.1"}


def run(data_dir: str | None) -> None:
    """Measure, print and keep, study by study, in turn."""
    outcomes: dict[str, list[list[dict[str, Any]]]] = {name: [] for name in NEW}
    with tempfile.TemporaryDirectory() as folder, WARM.held():
        for place in range(STUDIES):
            for name, new in NEW.items():
                outcomes[name].append(_gated(new, Path(folder) / f"{name}{place}"))
            failed = {name: _failed(found) for name, found in outcomes.items()}
            say(f"  {place + 1} of {STUDIES} of each: failed {failed}")
            asked = {"studies": place + 1, "budget": BUDGET, "limit": LIMIT}
            keep("script_gate", {**asked, "failed": failed, "outcomes": outcomes})
    print(f"gate between two scripts of one study: {STUDIES} studies of {BUDGET} each, at {LIMIT:.0%}")
    print(f"  beside itself: failed in {failed['same']} (asked: at most 1)")
    print(f"  beside one that is 10 % slower: failed in {failed['slow']} (asked: at least {STUDIES - 1})")


def _gated(new: str, folder: Path) -> list[dict[str, Any]]:
    """The gate of one study, at each world size."""
    done = worldsize.study(
        script=(SCRIPT, new), world_sizes=(1, 2), budget=BUDGET, fail_above=LIMIT, out=folder, report=False
    )
    return [each.as_json() for each in gate(done.analysis)]


def _failed(studies: list[list[dict[str, Any]]]) -> int:
    return sum(any(each["outcome"] == "failed" for each in study) for study in studies)
