"""The marks of tests that make network namespaces."""

import pytest

from worldsize.measure.abilities import network_namespaces
from worldsize.measure.facts import system_facts

_ability = network_namespaces(system_facts())

needs_rights = [
    pytest.mark.rights,
    pytest.mark.skipif(not _ability.available, reason=f"no emulated hosts here: {_ability.detail}"),
]
