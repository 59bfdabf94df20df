"""Where nobody looks a line comes at least every half a minute, and the answers of `--json` stay alone on stdout."""

import io
import threading
import time

import pytest

from worldsize.cli import display as shown
from worldsize.cli.display import LINE_S, Display
from worldsize.cli.heartbeat import BEAT_S, Heartbeat, working

SHORT_S = 0.05
LONG_S = 60.0


def wait_for(told: list[str], count: int) -> None:
    until = time.monotonic() + LONG_S
    while len(told) < count:
        assert time.monotonic() < until
        time.sleep(SHORT_S / 5)


def test_it_beats_while_nothing_is_told_and_ends_with_its_thread() -> None:
    told: list[str] = []
    before = threading.active_count()
    with Heartbeat("thinking", told.append, every_s=SHORT_S) as heartbeat:
        wait_for(told, 2)
        heartbeat.progress("resting")
        wait_for(told, len(told) + 2)
    assert threading.active_count() == before
    assert told[0] == "  thinking, 0 s since the start"
    assert told[-1].startswith("  resting, ")


def test_what_is_told_in_time_keeps_it_still() -> None:
    told: list[str] = []
    with Heartbeat("thinking", told.append, every_s=LONG_S) as heartbeat:
        heartbeat.progress()
    assert not told


def test_a_stderr_that_is_closed_ends_nothing() -> None:
    beats: list[str] = []

    def tell(line: str) -> None:
        beats.append(line)
        raise BrokenPipeError

    with Heartbeat("thinking", tell, every_s=SHORT_S):
        wait_for(beats, 2)


def test_lines_with_numbers_come_before_those_without() -> None:
    assert LINE_S < BEAT_S <= 30


def test_a_display_in_a_pipe_says_what_goes_on_before_there_is_anything_to_count(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shown, "Heartbeat", lambda what, tell: Heartbeat(what, tell, every_s=SHORT_S))
    heard = io.StringIO()
    until = time.monotonic() + LONG_S
    with Display():
        while "looking at data and model, " not in heard.getvalue():
            assert time.monotonic() < until
            time.sleep(SHORT_S)
            heard.write(capsys.readouterr().err)
    with Display(beating=False):
        assert "heartbeat" not in {thread.name for thread in threading.enumerate()}


def test_work_that_is_soon_done_is_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    with working("writing the report"):
        pass
    assert capsys.readouterr() == ("", "")
