"""Stands for a language model: it needs no network and no key. Put the call of yours in the place of `ask`."""

import re
from dataclasses import dataclass


@dataclass
class Reply:
    """Either a text, or a tool to call with its argument."""

    text: str = ""
    tool: str = ""
    argument: str = ""


def ask(messages: list[str]) -> Reply:
    """What the model says to this conversation."""
    question, *results = messages
    order = re.search(r"\d+", question)
    if order is None:
        return Reply("Which order is it?")
    if not results:
        return Reply(tool="look_up", argument=order[0])
    if "broken" in results[-1]:
        return Reply(tool="refund", argument=order[0])
    if results[-1].startswith("refused"):
        return Reply("A colleague will write to you.")
    return Reply(f"We are sorry. {results[-1]}.")
