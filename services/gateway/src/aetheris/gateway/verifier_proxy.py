"""Proofs come from the verifier, which is told for whom they are: its answers are handed on as they are."""

from collections.abc import Mapping
from urllib.parse import quote

import httpx

from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import NotBegun, NotFoundProblem, Unavailable
from aetheris.gateway.deadlines import Deadlines
from aetheris.gateway.job_reader import JobReader
from aetheris.http_server.internal import InternalKey
from aetheris.runtime.base.clock import Clock

QueryItems = list[tuple[str, str | int | float | bool | None]]
QueryParams = Mapping[str, str] | QueryItems


class VerifierProxy:
    """Asks the verifier about jobs that the caller may see."""

    def __init__(
        self,
        verifier: httpx.AsyncClient,
        key: InternalKey,
        *,
        reader: JobReader,
        deadlines: Deadlines,
        clock: Clock,
    ) -> None:
        self._verifier = verifier
        self._key = key
        self._reader = reader
        self._deadlines = deadlines
        self._clock = clock

    async def proof(
        self, caller: Principal, job_id: str, what: str, params: QueryParams | None = None
    ) -> httpx.Response:
        """The verifier's answer about a job: verify, stream, evidence, call-proof or inclusion.

        Raises:
            NotFound, Unavailable.
        """
        async with self._deadlines.deadline():
            row = await self._reader.row(caller, job_id)
            answer = await self._ask(caller.tenant, f"/jobs/{job_id}/{what}", params)
        if answer.status_code == NotFoundProblem.status and row.birth is None:
            raise NotBegun
        return answer

    async def seals(self, caller: Principal, what: str, params: QueryParams) -> httpx.Response:
        """The verifier's answer about the log of seals, which holds hashes only: checkpoint, consistency or leaves.

        Raises:
            Unavailable.
        """
        async with self._deadlines.deadline():
            return await self._ask(caller.tenant, f"/seals/{what}", params)

    async def _ask(self, tenant: str, path: str, params: QueryParams | None = None) -> httpx.Response:
        headers = {"Authorization": self._key.authorization(tenant, path, self._clock.now())}
        try:
            return await self._verifier.get(quote(path), params=params, headers=headers)
        except httpx.HTTPError:
            raise Unavailable("verifier_unreachable", "the verifier does not answer") from None
