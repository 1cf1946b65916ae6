"""A turn on its way: who leaves when."""

from __future__ import annotations

from zerolayer.server.conversation import Conversation
from zerolayer.server.jobs import RunningTurn
from zerolayer.server.turns import Finished, Message, Sampling, TextPart, TurnRequest, Usage

REQUEST = TurnRequest((Message("user", (TextPart("When?"),)),), Sampling(8))


def turn_with(left: list[str]) -> RunningTurn:
    conversation = Conversation.__new__(Conversation)  # no part in this
    return RunningTurn(REQUEST, conversation, lambda: left.append("left"))


def test_leaving_cancels_once():
    left: list[str] = []
    turn = turn_with(left)
    turn.cancel()
    turn.cancel()
    assert turn.cancelled and left == ["left"]


def test_who_leaves_after_the_end_has_not_cancelled():
    left: list[str] = []
    turn = turn_with(left)
    turn.tell(Finished("end_turn", None, Usage(1, 0, 0, 1)))
    turn.cancel()
    assert turn.ended and not turn.cancelled and left == []
