"""A refund agent on CrewAI: `python crewai_agent.py ORDER`, and again after a crash."""

import sys

from crewai import LLM, Agent

from aetheris.sdk.adapters import RunTools
from aetheris.sdk.adapters.crewai import crewai_tools


def settle(order: str) -> str:
    """Run it again after a crash: what it has done is not done again."""
    with RunTools(["refund", "send_mail"], run_id=f"refund {order}") as run:
        agent = Agent(
            role="Refunds", goal="Orders are refunded.", backstory="", llm=LLM(model="gpt-5"), tools=crewai_tools(run)
        )
        return str(agent.kickoff(f"Refund order {order}, and tell who has ordered."))


if __name__ == "__main__":
    print(settle(sys.argv[1]))
