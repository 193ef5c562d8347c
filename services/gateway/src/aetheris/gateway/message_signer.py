"""The signature of what people say: what comes at the same time is signed together, at the cost of one."""

import asyncio
from collections.abc import Sequence
from itertools import islice

from aetheris.gateway.core.problems import Unavailable
from aetheris.protocol.base.records import Draft
from aetheris.runtime.keys.records import RecordKeys
from aetheris.runtime.keys.signing import CertificateNotInForce


def signed(record: Draft, keys: RecordKeys) -> Draft:
    """What a person says, signed by this gateway where it has a key.

    Raises:
        Unavailable: its certificate has ended, and with it this process.
    """
    try:
        return keys.message(record)
    except CertificateNotInForce as ended:
        raise Unavailable(ended.code, "the gateway's certificate is not in force: nothing can be said") from None


class MessageSigner:
    """Signs what is asked for in one turn of the event loop under one signature; nothing waits for more to come."""

    def __init__(self, keys: RecordKeys) -> None:
        self._keys = keys
        self._waiting: list[tuple[Sequence[Draft], asyncio.Future[Sequence[Draft]]]] = []

    @property
    def signs(self) -> bool:
        """Whether this gateway has a key."""
        return self._keys.signer is not None

    async def signed(self, record: Draft) -> Draft:
        """As `signed`."""
        return (await self.together([record]))[0]

    async def together(self, records: Sequence[Draft]) -> Sequence[Draft]:
        """Several of one turn, in their order; raises as `signed`."""
        if self._keys.signer is None:
            return records
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._sign)
        made: asyncio.Future[Sequence[Draft]] = loop.create_future()
        self._waiting.append((records, made))
        return await made

    def _sign(self) -> None:
        asked, self._waiting = self._waiting, []
        waiting = [(records, made) for records, made in asked if not made.done()]  # who has given up says nothing
        try:
            found = iter(self._keys.together([record for records, _ in waiting for record in records]))
        except Exception:  # noqa: BLE001 - what can't be signed takes nobody else's word with it
            for records, made in waiting:
                self._sign_alone(records, made)
        else:
            for records, made in waiting:
                made.set_result(list(islice(found, len(records))))

    def _sign_alone(self, records: Sequence[Draft], made: "asyncio.Future[Sequence[Draft]]") -> None:
        try:
            made.set_result([signed(record, self._keys) for record in records])
        except Exception as error:  # noqa: BLE001 - it is for who waits
            made.set_exception(error)
