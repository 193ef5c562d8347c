"""The file that says who is told what, read once at the start."""

from pathlib import Path

from aetheris.notifier.core.notice_routes import NoticeRoutes, parsed
from aetheris.protocol.base.faults import FileFault, placed
from aetheris.runtime.base.refusal import StartRefused


class NoticesUnusable(StartRefused):
    """The file that AETHERIS_NOTICES names can't be used: mend it, then start again."""

    code = "notices_unusable"


def load(path: Path) -> NoticeRoutes:
    """Its channels and routes; raises NoticesUnusable, naming the file, the line and the field."""
    try:
        return parsed(path.read_text())
    except OSError as error:
        raise NoticesUnusable(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise NoticesUnusable(f"{path}: is not TOML: it is no UTF-8") from None
    except FileFault as error:
        raise NoticesUnusable(f"{placed(path, error.line)}: {error}") from None
