"""LangGraph: a thread for each job, a superstep for each step. Environment: BENCH_DATABASE, BENCH_SOCKET.

Nothing takes up what a killed worker left; who asks again for its job does so.
"""

import asyncio
import os
from typing import NotRequired, TypedDict

from asked import serve
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Send
from note import Job, note


class State(TypedDict):
    """How far a job is; of the results only the last, so that a checkpoint stays small."""

    job: Job
    step: NotRequired[int]
    result: NotRequired[dict[str, str]]


async def step_of(state: State) -> State:
    """One step after another."""
    step = state.get("step", 0)
    result = await note(state["job"]["job"], step, state["job"]["slow"])
    return {"job": state["job"], "step": step + 1, "result": result}


async def one_of_many(state: State) -> None:
    """One of the steps that wait for nothing."""
    await note(state["job"]["job"], state.get("step", 0), state["job"]["slow"])


def _first(state: State) -> str | list[Send]:
    job = state["job"]
    if job["parallel"]:
        return [Send("one_of_many", {"job": job, "step": step}) for step in range(job["steps"])]
    return "step_of"


def _next(state: State) -> str:
    return "step_of" if state.get("step", 0) < state["job"]["steps"] else END


def _graph() -> StateGraph[State]:
    graph = StateGraph(State)
    graph.add_node("step_of", step_of)
    graph.add_node("one_of_many", one_of_many)
    graph.add_conditional_edges(START, _first, ["step_of", "one_of_many"])
    graph.add_conditional_edges("step_of", _next, ["step_of", END])
    graph.add_edge("one_of_many", END)
    return graph


async def _run(compiled: CompiledStateGraph[State], job: Job) -> None:
    """From the last checkpoint, where there is one."""
    config: RunnableConfig = {"configurable": {"thread_id": job["job"]}, "recursion_limit": job["steps"] + 10}
    begun = await compiled.aget_state(config)
    if begun.values and not begun.next:
        return
    await compiled.ainvoke(None if begun.next else {"job": job}, config, durability="sync")


async def main() -> None:
    """Open the database, then take jobs."""
    async with AsyncSqliteSaver.from_conn_string(os.environ["BENCH_DATABASE"]) as saver:
        await saver.setup()
        compiled = _graph().compile(checkpointer=saver)
        await serve(os.environ["BENCH_SOCKET"], lambda job: _run(compiled, job))


if __name__ == "__main__":
    asyncio.run(main())
