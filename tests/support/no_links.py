"""Studies of this process without the collective benchmark before their cells.

It takes 3 s of all ranks, on hosts of their own 5 s, in each study of several workers that has no epochs. Only
bandwidths, forecasts and some advice read what it finds. cli/test_end_to_end.py and strategies/test_own_traits.py run
it in a study.
"""

import pytest

from worldsize.study import run as study_run


def leave_links_out(patch: pytest.MonkeyPatch) -> None:
    """Measure no links until the patch is undone."""
    patch.setattr(study_run, "measure_links", lambda *_: [])
