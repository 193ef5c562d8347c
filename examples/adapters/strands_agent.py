"""A refund agent on Strands Agents: `python strands_agent.py ORDER`, and again after a crash."""

import sys

from strands import Agent
from strands.models.openai import OpenAIModel

from aetheris.sdk.adapters import RunTools
from aetheris.sdk.adapters.strands import strands_tools


def settle(order: str) -> str:
    """Run it again after a crash: what it has done is not done again."""
    with RunTools(["refund", "send_mail"], run_id=f"refund {order}") as run:
        agent = Agent(OpenAIModel(model_id="gpt-5", stream=False), tools=[*strands_tools(run)], callback_handler=None)
        return str(agent(f"Refund order {order}, and tell who has ordered."))


if __name__ == "__main__":
    print(settle(sys.argv[1]))
