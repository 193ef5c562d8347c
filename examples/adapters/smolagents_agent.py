"""A refund agent on smolagents: `python smolagents_agent.py ORDER`, and again after a crash."""

import sys

from smolagents import LogLevel, OpenAIModel, ToolCallingAgent

from aetheris.sdk.adapters import RunTools
from aetheris.sdk.adapters.smolagents import smolagents_tools


def settle(order: str) -> str:
    """Run it again after a crash: what it has done is not done again."""
    with RunTools(["refund", "send_mail"], run_id=f"refund {order}") as run:
        agent = ToolCallingAgent(tools=smolagents_tools(run), model=OpenAIModel("gpt-5"), verbosity_level=LogLevel.OFF)
        return str(agent.run(f"Refund order {order}, and tell who has ordered."))


if __name__ == "__main__":
    print(settle(sys.argv[1]))
