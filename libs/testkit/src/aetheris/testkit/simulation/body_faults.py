"""What may go wrong with workflows beside all else (faults.py)."""

from aetheris.testkit.simulation.faults import Kind, SimulatedFaults
from aetheris.testkit.simulation.flows import EDITS, PAID


def code_is_deployed(faults: SimulatedFaults) -> str | None:
    """Who starts from now on has it; of one executor it is at once."""
    edit = faults.around.tape.pick(tuple(EDITS))
    faults.around.deployed.append(edit)
    found = [one for one in faults.processes.executors if one.owner and not one.paused]
    if found:
        faults.processes.crash(faults.around.tape.pick(found))
    return f"code is deployed: {edit}"


def bodies_are_lost(faults: SimulatedFaults) -> str | None:
    """Their process dies, and their executor does not."""
    found = [one for one in faults.processes.executors if not one.paused and one.bodies.lose()]
    return f"{', '.join(one.name for one in found)}: its bodies are lost" if found else None


def workflow_is_signalled(faults: SimulatedFaults) -> str | None:
    """Early, late, or again."""
    submission = faults.around.tape.pick(faults.around.scenario.submissions)
    if submission.job_id not in faults.observer.jobs:
        return None
    faults.human.signal(submission.job_id, PAID)
    return f"{submission.job_id} is told {PAID}"


BODIES: tuple[Kind, ...] = (
    *(SimulatedFaults.executor_crashes for _ in range(8)),
    *(SimulatedFaults.executor_is_taken_over for _ in range(5)),
    *(SimulatedFaults.executor_is_paused for _ in range(5)),
    *(SimulatedFaults.executor_is_revoked for _ in range(3)),
    *(bodies_are_lost for _ in range(6)),
    *(workflow_is_signalled for _ in range(3)),
    *(SimulatedFaults.step_is_called_off for _ in range(4)),
)
"""In seeds that have workflows, beside all others."""
EDITS_OF_CODE: tuple[Kind, ...] = (code_is_deployed,) * 20
"""In those in which their code changes."""
