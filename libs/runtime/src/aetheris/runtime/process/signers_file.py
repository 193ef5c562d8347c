"""The file of allowed signers, as OpenSSH has it, read once at the start."""

from pathlib import Path

from aetheris.protocol.base.allowed_signers import MAX_FILE_BYTES, AllowedSigners, SignersInvalid, parse_signers
from aetheris.protocol.base.faults import placed
from aetheris.runtime.base.refusal import StartRefused


class SignersFileInvalid(StartRefused):
    """The file that AETHERIS_SIGNERS names can't be used, or none is named: mend it, then start again."""

    code = "signers_file_invalid"


def load_signers(path: Path | None, needed_by: str | None = None) -> AllowedSigners:
    """Whose keys count; without a file nobody's. `needed_by`: a rule that asks for signatures.

    Raises:
        SignersFileInvalid: naming the file and the line; or the rule, which nobody could ever satisfy.
    """
    if path is None:
        if needed_by is not None:
            rule = f"rule {needed_by!r} asks for signatures, and AETHERIS_SIGNERS names no file of allowed signers"
            raise SignersFileInvalid(rule)
        return AllowedSigners()
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise SignersFileInvalid(f"{path}: {error.strerror}") from None
    if len(raw) > MAX_FILE_BYTES:
        raise SignersFileInvalid(f"{path}: is larger than {MAX_FILE_BYTES // 1024} KiB")
    try:
        return parse_signers(raw.decode())
    except UnicodeDecodeError:
        raise SignersFileInvalid(f"{path}: is no UTF-8") from None
    except SignersInvalid as error:
        raise SignersFileInvalid(f"{placed(path, error.line)}: {error}") from None
