"""Proofs come from the verifier: its answers are handed on as they are."""

from collections.abc import Mapping

import httpx

from aetheris.gateway.core.caller import Caller
from aetheris.gateway.core.problems import NotBegun, NotFound, Unavailable
from aetheris.gateway.deadlines import Deadlines
from aetheris.gateway.job_reader import JobReader


class VerifierProxy:
    """Asks the verifier about jobs that the caller may see."""

    def __init__(self, verifier: httpx.AsyncClient, reader: JobReader, deadlines: Deadlines) -> None:
        self._verifier = verifier
        self._reader = reader
        self._deadlines = deadlines

    async def proof(self, caller: Caller, job_id: str, what: str) -> httpx.Response:
        """The verifier's answer about a job: verify, stream, evidence or inclusion.

        Raises:
            NotFound, Unavailable.
        """
        async with self._deadlines.deadline():
            row = await self._reader.row(caller, job_id)
            answer = await self._ask(f"/jobs/{job_id}/{what}")
        if answer.status_code == NotFound.status and row.birth is None:
            raise NotBegun
        return answer

    async def seals(self, what: str, params: Mapping[str, str]) -> httpx.Response:
        """The verifier's answer about the log of seals, which holds hashes only: checkpoint, consistency or leaves.

        Raises:
            Unavailable.
        """
        async with self._deadlines.deadline():
            return await self._ask(f"/seals/{what}", params)

    async def _ask(self, path: str, params: Mapping[str, str] | None = None) -> httpx.Response:
        try:
            return await self._verifier.get(path, params=params)
        except httpx.HTTPError:
            raise Unavailable("verifier_unreachable", "the verifier does not answer") from None
