"""What doctor asks of torch and of the operating system."""

import sys

import pytest

from worldsize.measure.facts import (
    SystemFacts,
    TorchFacts,
    missing_capabilities,
    selected_word,
    system_facts,
    torch_facts,
)


def test_torch_facts_are_those_of_the_installed_torch() -> None:
    import torch

    facts = torch_facts()
    assert facts.version == str(torch.__version__)
    assert facts.error is None
    assert (facts.build == "CPU") == (torch.version.cuda is None and torch.version.hip is None)
    assert facts.gloo == torch.distributed.is_gloo_available()
    assert facts.nccl == torch.distributed.is_nccl_available()


def test_a_torch_that_cannot_be_imported_is_a_fact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    facts = torch_facts()
    assert facts.error is not None
    assert "torch" in facts.error
    assert (facts.build, facts.gloo, facts.nccl) == (None, False, False)


def test_system_facts_can_be_read_back() -> None:
    facts = system_facts()
    assert facts.available_memory_bytes > 0
    assert facts.huge_pages in (None, "always", "madvise", "never")
    assert SystemFacts.model_validate_json(facts.model_dump_json()) == facts
    assert TorchFacts.model_validate_json(torch_facts().model_dump_json()) == torch_facts()


@pytest.mark.parametrize(
    ("status", "missing"),
    [
        ("Name:\tx\nCapEff:\t000001ffffffffff\n", ()),
        ("CapPrm:\t000001ffffffffff\nCapEff:\t0000000000000000\n", ("CAP_NET_ADMIN", "CAP_SYS_ADMIN")),
        ("CapEff:\t0000000000001000\n", ("CAP_SYS_ADMIN",)),
        ("CapEff:\t00000000a80425fb\n", ("CAP_NET_ADMIN", "CAP_SYS_ADMIN")),  # root in a container, by default
        ("", ("CAP_NET_ADMIN", "CAP_SYS_ADMIN")),
    ],
)
def test_missing_capabilities_are_those_not_in_effect(status: str, missing: tuple[str, ...]) -> None:
    assert missing_capabilities(status) == missing


def test_variables_of_the_shell_are_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    monkeypatch.delenv("THP_MEM_ALLOC_ENABLE", raising=False)
    assert (system_facts().preloaded, system_facts().huge_pages_request) == ("", None)
    monkeypatch.setenv("THP_MEM_ALLOC_ENABLE", "0")
    assert system_facts().huge_pages_request == "0"


def test_missing_programs_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worldsize.measure.facts.find_program", lambda name: None)
    assert system_facts().missing_programs == ("ip", "tc")


@pytest.mark.parametrize(
    ("text", "word"),
    [("always [madvise] never\n", "madvise"), ("[always] madvise never", "always"), ("", None), ("always", None)],
)
def test_selected_word_is_the_one_in_brackets(text: str, word: str | None) -> None:
    assert selected_word(text) == word
