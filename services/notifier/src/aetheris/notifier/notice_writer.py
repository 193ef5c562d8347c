"""The gateway, as the notifier uses it: jobs that tell somebody are submitted, and cancelled. Nothing is read of it."""

import structlog

from aetheris.notifier.core.notices import OPTIONS, NoticeJob
from aetheris.notifier.settings import NotifierSettings
from aetheris.protocol.base.ids import job_id_of
from aetheris.runtime.base.refusal import StartRefused
from aetheris.runtime.telemetry.metrics import Metric, Metrics
from aetheris.sdk.client import ApiError, AsyncClient, BadRequest, Conflict, ResourceNotFound

_log = structlog.get_logger(__name__)

_REASON = "answered"


class TokenUnreadable(StartRefused):
    """The file that AETHERIS_GATEWAY_TOKEN names can't be read."""

    code = "gateway_token_unreadable"


class NotTaken(Exception):
    """The gateway takes nothing for now; the fact is to come again."""


class NoticeWriter:
    """One job for each notice, however often that is asked for."""

    def __init__(self, settings: NotifierSettings, metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._client: AsyncClient | None = None
        self._tenant: str | None = None
        self._why_not: str | None = "has not asked the gateway yet"

    def unready(self) -> str | None:
        """Why nobody is told anything now."""
        return self._why_not

    async def connect(self) -> None:
        """Learn whose token it is; raises NotTaken, TokenUnreadable."""
        await self._ready()

    async def submit(self, job: NoticeJob) -> None:
        """Submit a notice's job: it is in the log once this returns, or nobody can ever submit it.

        Raises:
            NotTaken: it is not known to be; the same again is the same job.
        """
        client, _ = await self._ready()
        try:
            await client.submit(job.plan, options=OPTIONS, idempotency_key=job.key)
        except Conflict as error:
            # told before, by another text or route; or the key is somebody else's, who may submit in our tenant
            self._untold("key_taken", error)
        except BadRequest as error:
            if (error.field or "").endswith(".tool"):  # no executor has said yet that it has it
                raise self._failed(error) from None
            self._untold("refused", error)
        except ApiError as error:
            raise self._failed(error) from None
        self._why_not = None

    async def cancel(self, key: str) -> None:
        """What is not told yet need not be; raises NotTaken."""
        client, tenant = await self._ready()
        try:
            await client.cancel(job_id_of(tenant, key), reason=_REASON)
        except (ResourceNotFound, Conflict):
            pass  # there is none, or it has ended
        except ApiError as error:
            raise self._failed(error) from None
        self._why_not = None

    async def close(self) -> None:
        """Disconnect."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _ready(self) -> tuple[AsyncClient, str]:
        if self._client is None:
            self._client = AsyncClient(self._settings.gateway_url, self._token(), ca=self._settings.ca)
        if self._tenant is None:
            try:
                self._tenant = str((await self._client.limits())["tenant"])
            except ApiError as error:
                failed = self._failed(error)
                await self.close()  # the token is read anew: it may have been replaced
                raise failed from None
        return self._client, self._tenant

    def _token(self) -> str:
        try:
            return self._settings.gateway_token.read_text().strip()
        except (OSError, UnicodeDecodeError):
            raise TokenUnreadable(f"{self._settings.gateway_token}: the token can't be read") from None

    def _failed(self, error: ApiError) -> NotTaken:
        self._why_not = f"the gateway takes nothing: {error.code}"
        if error.code != "unreachable":
            _log.warning("the gateway takes nothing", code=error.code)
        self._tenant = None
        return NotTaken(error.code)

    def unjudged(self, job_id: str, error: Exception) -> None:
        """What nobody is told of, as it could not be judged: it holds up nothing behind it."""
        _log.error("a fact that could not be told of", job_id=job_id, error=type(error).__name__)
        self._metrics.count(Metric.NOTICES_UNTOLD, reason="unjudged")

    def _untold(self, reason: str, error: ApiError) -> None:
        _log.error("a notice that no job tells", reason=reason, code=error.code, job_id=error.details.get("job_id"))
        self._metrics.count(Metric.NOTICES_UNTOLD, reason=reason)
