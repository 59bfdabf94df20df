"""Turns are done one after the other, each is answered, and `finish` is the last."""

from worldsize.ranks.turns import Reply, Turn, run_turns


class Script:
    """Gives out the turns of a list, and notes all that happens, in order."""

    def __init__(self, *turns: Turn) -> None:
        self.turns = list(turns)
        self.log: list[tuple[str, object]] = []

    def reply(self, reply: Reply) -> None:
        self.log.append(("reply", reply.peak_memory_bytes))

    def next(self) -> Turn:
        return self.turns.pop(0)

    def do(self, turn: Turn) -> Reply:
        self.log.append((turn.op, turn.count))
        return Reply(peak_memory_bytes=turn.count)


def test_each_turn_is_done_and_answered_in_order_until_finish() -> None:
    late = Turn(op="steps", count=9)
    script = Script(Turn(op="steps", count=1), Turn(op="evaluate", count=2), Turn(op="finish", count=3), late)
    run_turns(script, Reply(peak_memory_bytes=7), script.do)
    assert script.log == [
        ("reply", 7),
        ("steps", 1),
        ("reply", 1),
        ("evaluate", 2),
        ("reply", 2),
        ("finish", 3),
        ("reply", 3),
    ]
    assert script.turns == [late]


def test_steps_train_only_with_instruments_and_exchange() -> None:
    assert Turn(op="steps").trains
    assert not Turn(op="steps", observe=False).trains
    assert not Turn(op="steps", synchronise=False).trains
