"""Services that lie about some jobs, by what their plans say: for PYTHONPATH, before the repository.

A planner passes over what is to be left out, a verifier never seals what is to stay open, and shows another stream of
what is to be written anew once a file says so.
"""

from pathlib import Path

LEFT_OUT, NEVER_ENDED, REWRITTEN = "left-out", "never-ended", "re-written"

_PATCHES = """
import importlib.abc, importlib.util, os, sys

SWITCH = {switch!r}


def planner(module):
    honest = module.Partition.submit

    def submit(self, command, command_id, offset):
        return None if "left-out" in str(command.plan) else honest(self, command, command_id, offset)

    module.Partition.submit = submit


def auditor(module):
    honest = module.Partition.to_seal
    module.Partition.to_seal = lambda self: [job for job in honest(self) if not hidden(job)]


def open_jobs(module):
    honest = module.OpenJobs.due
    module.OpenJobs.due = lambda self, jobs, now_s: [
        job for job in honest(self, jobs, now_s) if not hidden(jobs[job.job_id])
    ]


def hidden(job):
    return "never-ended" in str(job.audit.history.created.body)


def proofs(module):
    honest = module.Proofs.stream

    async def stream(self, *asked):
        records = list(await honest(self, *asked))
        if os.path.exists(SWITCH) and b"re-written" in records[0].value:
            headers = tuple((k, b"2020-01-01T00:00:00Z" if k == "ce_time" else v) for k, v in records[1].headers)
            records[1] = records[1].replaced(headers=headers)
        return records

    module.Proofs.stream = stream


PATCHES = {{
    "aetheris.planner.core.partition": planner,
    "aetheris.verifier.core.partition": auditor,
    "aetheris.verifier.core.open_jobs": open_jobs,
    "aetheris.verifier.proofs": proofs,
}}


class Liar(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        patch = PATCHES.pop(name, None)
        if patch is None:
            return None
        spec = importlib.util.find_spec(name)
        honest = spec.loader.exec_module

        def exec_module(module):
            honest(module)
            patch(module)

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Liar())
"""


def installed(folder: Path) -> Path:
    """Write them into a folder, which is to be on PYTHONPATH; the file that lets the verifier show another stream."""
    switch = folder / "show-another-stream"
    (folder / "sitecustomize.py").write_text(_PATCHES.format(switch=str(switch)))
    return switch
