"""Jobs by their Idempotency-Key, for a program that may be killed at any point: the same key is the same job."""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from aetheris.protocol.base.ids import job_id_of
from aetheris.sdk.client.asynchronous import AsyncClient
from aetheris.sdk.client.errors import ApiError, BadRequest, Conflict, ResourceNotFound


class NotTaken(Exception):
    """The gateway takes nothing for now, or it is not known whether it did: the same again is the same job."""


class JobRefused(Exception):
    """It can never be submitted; `code` is the gateway's, `job_id` the job that has its key already."""

    def __init__(self, code: str, job_id: str | None = None) -> None:
        super().__init__(code)
        self.code = code
        self.job_id = job_id


class KeyedJobs:
    """Submits and cancels by key, and reads nothing. The token's file is read when it connects, and after a refusal."""

    def __init__(self, url: str, token: Path, ca: str | PathLike[str] | None = None) -> None:
        self._url = url
        self._token = token
        self._ca = ca
        self._client: AsyncClient | None = None
        self._tenant: str | None = None
        self._why_not: str | None = "has not asked the gateway yet"

    def unready(self) -> str | None:
        """Why nothing is taken now; None where the last request was answered."""
        return self._why_not

    async def connect(self) -> None:
        """Learn whose the token is; raises NotTaken."""
        await self._ready()
        self._why_not = None

    async def submit(self, plan: Mapping[str, Any], key: str, options: Mapping[str, Any] | None = None) -> str:
        """Submit a plan under a key: once this returns, it is in the log; the job's id.

        Raises:
            NotTaken: it is not known to be; also where a tool of it is not registered yet.
            JobRefused: the plan is none, or another request has the key.
        """
        client, _ = await self._ready()
        try:
            submitted = await client.submit(plan, options=options, idempotency_key=key)
        except Conflict as error:
            self._why_not = None
            raise JobRefused(error.code, error.details.get("job_id")) from None
        except BadRequest as error:
            if (error.field or "").endswith(".tool"):  # no executor has said yet that it has it
                raise await self._failed(error) from None
            self._why_not = None
            raise JobRefused(error.code) from None
        except ApiError as error:
            raise await self._failed(error) from None
        self._why_not = None
        return submitted.job_id

    async def tell_schedules(self, report: Mapping[str, Any]) -> None:
        """Tell people what starts jobs here; raises NotTaken."""
        client, _ = await self._ready()
        try:
            await client.tell_schedules(report)
        except ApiError as error:
            raise await self._failed(error) from None

    async def cancel(self, key: str, reason: str) -> None:
        """Cancel the job of a key, if there is one that has not ended; raises NotTaken."""
        client, tenant = await self._ready()
        try:
            await client.cancel(job_id_of(tenant, key), reason=reason)
        except (ResourceNotFound, Conflict):
            pass
        except ApiError as error:
            raise await self._failed(error) from None
        self._why_not = None

    async def close(self) -> None:
        """Disconnect."""
        client, self._client, self._tenant = self._client, None, None
        if client is not None:
            await client.close()

    async def _ready(self) -> tuple[AsyncClient, str]:
        if self._client is None:
            try:
                self._client = AsyncClient(self._url, self._token.read_text().strip(), ca=self._ca)
            except (OSError, ValueError):
                self._why_not = "its token can't be read"
                raise NotTaken("token_unreadable") from None
        if self._tenant is None:
            try:
                self._tenant = str((await self._client.limits())["tenant"])
            except ApiError as error:
                raise await self._failed(error) from None
        return self._client, self._tenant

    async def _failed(self, error: ApiError) -> NotTaken:
        """The next request connects anew: the token may have been replaced."""
        self._why_not = f"the gateway takes nothing: {error.code}"
        await self.close()
        return NotTaken(error.code)
