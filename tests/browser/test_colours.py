"""Text stands out from what is behind it, in light and in dark (WCAG 2.2, 1.4.3)."""

import pytest

from browser.conftest import Surveys
from browsing import NARROW_AND_WIDE, SCHEMES
from made_reports import RUNS

MIN = 4.5
every_report = pytest.mark.parametrize("name", RUNS)


@every_report
def test_text_can_be_read_in_light_and_dark(seen: Surveys, name: str) -> None:
    for width in NARROW_AND_WIDE:
        for scheme in SCHEMES:
            found = seen(name).contrasts[width, scheme]
            assert len(found) > 50
            assert [each for each in found if each["contrast"] < MIN] == [], f"{scheme}, {width} px"


@every_report
def test_light_is_light_and_dark_is_dark(seen: Surveys, name: str) -> None:
    papers = seen(name).papers
    assert min(papers["light"][:3]) > 200
    assert max(papers["dark"][:3]) < 60
