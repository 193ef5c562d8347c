"""A model that plays the script which its goal is (pure): what it was asked says what it answers, so it keeps nothing.

A goal is JSON, [[{"tool", "args"}, …], …]: the calls of each turn; behind the last turn the model is done. Each answer
asks for a `delay_s` of its own: one that is asked for again makes other calls, if anybody acts on both.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

NAME = "scripted"
DONE = "There is nothing left to do."


def completion(body: Mapping[str, Any], number: int) -> dict[str, Any]:
    """The response of OpenAI's chat completions to a request, as the `number`-th answer of all."""
    calls = [
        {
            "id": f"call-{number}-{place}",
            "type": "function",
            "function": {"name": call["tool"], "arguments": json.dumps(_varied(call["args"], number))},
        }
        for place, call in enumerate(_turn(body["messages"]))
    ]
    message = {"role": "assistant", "content": None, "tool_calls": calls} if calls else {**_SAYS_DONE}
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 0,
        "model": NAME,
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


_SAYS_DONE = {"role": "assistant", "content": DONE}


def _varied(args: Mapping[str, Any], number: int) -> dict[str, Any]:
    return {**args, "delay_s": args["delay_s"] + number / 1_000_000}


def _turn(messages: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The calls that the script has next: as many turns lie behind as there are answers in the request."""
    script = json.loads(next(one["content"] for one in messages if one["role"] == "user"))
    turn = sum(1 for one in messages if one["role"] == "assistant")
    return script[turn] if turn < len(script) else ()
