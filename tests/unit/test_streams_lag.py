"""A reader knows how far behind it is."""

from aetheris.protocol.records import Draft
from aetheris.streams.pump import Pump
from aetheris.testkit.memory import MemoryLog


async def test_lag_is_what_the_log_has_beyond_what_was_delivered() -> None:
    log = MemoryLog()
    log.create("t", 1)
    appender = log.appender()
    await appender.start()
    pump = Pump(log, lambda _place, _records: None)
    pump.add({("t", 0): 0})
    await appender.append([(Draft("t", b"k", b"v"),)] * 3)
    await pump.check_silence()
    assert pump.lag == 3
