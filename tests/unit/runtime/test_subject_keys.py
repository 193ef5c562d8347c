"""Keys of subjects: made once, found by name or pseudonym, destroyed for ever."""

import asyncio
import errno
import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from aetheris.protocol.base.hidden_values import HiddenValue
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.base.whole_file import write_whole
from aetheris.runtime.blobs.store import BlobMissing, FolderBlobs
from aetheris.runtime.process.settings import SubjectSettings
from aetheris.runtime.process.subject_store import hiding_of
from aetheris.runtime.subjects.hidden_store import HiddenStore, SealedValue, blob_path, sealed
from aetheris.runtime.subjects.kms import (
    FileKms,
    HiddenCorrupt,
    KmsRefused,
    SubjectErased,
    SubjectHeld,
    SubjectKeyError,
    SubjectKeyMissing,
    SubjectKeysAway,
    make_file_key,
)
from aetheris.runtime.subjects.subject_keys import ErasedSubject, SubjectKeys

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def keys_in(folder: Path, wrapping: str = "wrapping") -> SubjectKeys:
    make_file_key(folder / wrapping)
    return SubjectKeys(folder / "subjects", FileKms(folder / wrapping), lambda: NOW)


def hiding_in(folder: Path) -> HiddenStore:
    return HiddenStore(keys_in(folder), FolderBlobs(folder / "blobs"))


async def hide(hiding: HiddenStore, subject: str, value: object, job: str = "job-1") -> SealedValue:
    tenant = "acme"
    key = (await hiding.keys.enrolled(tenant, [subject]))[subject]
    found = sealed({key.k: key.key}, tenant, job, value)
    await hiding.keep([found])
    return found


async def test_a_subject_has_one_key_wherever_it_is_asked_for(tmp_path: Path) -> None:
    one, other = keys_in(tmp_path), keys_in(tmp_path)
    asked = await asyncio.gather(*(keys.enrolled("acme", ["ann", "bob"]) for keys in (one, other) * 8))
    assert all(found == asked[0] for found in asked)
    assert asked[0]["ann"].k != asked[0]["bob"].k
    assert (await other.enrolled("globex", ["ann"]))["ann"].k != asked[0]["ann"].k
    assert await other.known([asked[0]["ann"].k]) == {asked[0]["ann"].k: asked[0]["ann"].key}


async def test_a_name_is_one_person_however_its_letters_are_put_together(tmp_path: Path) -> None:
    composed, taken_apart = "Zo\u00eb \u1e69", "Zoe\u0308 s\u0307\u0323"
    found = await keys_in(tmp_path).enrolled("acme", [composed, taken_apart, "Zoe s"])
    assert found[composed] == found[taken_apart] != found["Zoe s"]
    erased = await keys_in(tmp_path).erase("acme", taken_apart)
    assert erased is not None
    assert erased.k == found[composed].k
    with pytest.raises(SubjectErased):
        await keys_in(tmp_path).enrolled("acme", [composed])


async def test_the_store_has_no_name_and_no_key_in_the_clear(tmp_path: Path) -> None:
    found = (await keys_in(tmp_path).enrolled("acme", ["ann of acme"]))["ann of acme"]
    kept = b"".join(path.read_bytes() for path in (tmp_path / "subjects").rglob("*") if path.is_file())
    assert b"ann" not in kept
    assert found.key.hex().encode() not in kept
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "subjects" / "keys").iterdir())


async def test_of_whom_an_erasure_is_can_be_asked_until_he_is_enrolled_anew(tmp_path: Path) -> None:
    keys = keys_in(tmp_path)
    found = (await keys.enrolled("acme", ["ann"]))["ann"]
    wrapped = (tmp_path / "subjects" / "keys" / found.k).read_bytes()
    assert (await keys.erased("acme", "ann"), await keys.erased("acme", "bob")) == (None, None)
    erased = await keys.erase("acme", "ann")
    assert await keys_in(tmp_path).erased("acme", "ann") == erased == ErasedSubject(found.k, NOW.isoformat())
    key = tmp_path / "subjects" / "keys" / found.k
    key.write_bytes(wrapped)  # as if the erasure had been cut short before that
    await keys.erased("acme", "ann")
    assert b"wrapped" not in key.read_bytes()
    await keys.enrol_anew("acme", "ann")
    assert await keys.erased("acme", "ann") is None


async def test_what_is_destroyed_is_gone_for_every_process_at_once(tmp_path: Path) -> None:
    one, other = keys_in(tmp_path), keys_in(tmp_path)
    found = (await one.enrolled("acme", ["ann"]))["ann"]
    wrapped = json.loads((tmp_path / "subjects" / "keys" / found.k).read_bytes())["wrapped"]
    await other.known([found.k])
    assert await one.erase("acme", "ann") == ErasedSubject(found.k, NOW.isoformat())
    with pytest.raises(SubjectErased):
        await other.known([found.k])
    assert await other.erase("acme", "ann") == ErasedSubject(found.k, NOW.isoformat())
    for keys in (one, other, keys_in(tmp_path)):
        with pytest.raises(SubjectErased):
            await keys.known([found.k])
        with pytest.raises(SubjectErased):
            await keys.enrolled("acme", ["bob", "ann"])
    kept = b"".join(path.read_bytes() for path in (tmp_path / "subjects").rglob("*") if path.is_file())
    assert wrapped.encode() not in kept
    assert await one.erase("acme", "nobody") is None


async def test_an_erasure_that_was_cut_short_is_ended_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = keys_in(tmp_path)
    found = (await keys.enrolled("acme", ["ann"]))["ann"]

    def dies(_path: Path, _body: object) -> None:
        raise OSError

    with monkeypatch.context() as patched:
        patched.setattr("aetheris.runtime.subjects.subject_keys._overwrite", dies)
        with pytest.raises(SubjectKeysAway):
            await keys.erase("acme", "ann")
    with pytest.raises(SubjectErased):
        await keys.enrolled("acme", ["ann"])
    assert await keys.erase("acme", "ann") == ErasedSubject(found.k, NOW.isoformat())
    with pytest.raises(SubjectErased):
        await keys.known([found.k])


async def test_a_kill_in_the_middle_of_a_destruction_leaves_what_can_be_read_and_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = keys_in(tmp_path)
    found = (await keys.enrolled("acme", ["ann"]))["ann"]
    written: list[Path] = []

    def dies_behind_the_first(path: Path, data: bytes) -> None:
        if written:
            raise OSError
        written.append(path)
        write_whole(path, data)

    with monkeypatch.context() as patched:
        patched.setattr("aetheris.runtime.subjects.subject_keys.write_whole", dies_behind_the_first)
        with pytest.raises(SubjectKeysAway):
            await keys.erase("acme", "ann")
    with pytest.raises(SubjectErased):
        await keys_in(tmp_path).known([found.k])
    assert await keys.erase("acme", "ann") == ErasedSubject(found.k, NOW.isoformat())


async def test_who_is_enrolled_anew_behind_an_erasure_cut_short_leaves_no_key_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = keys_in(tmp_path)
    found = (await keys.enrolled("acme", ["ann"]))["ann"]

    def dies(_path: Path, _body: object) -> None:
        raise OSError

    with monkeypatch.context() as patched:
        patched.setattr("aetheris.runtime.subjects.subject_keys._overwrite", dies)
        with pytest.raises(SubjectKeysAway):
            await keys.erase("acme", "ann")
    assert await keys.enrol_anew("acme", "ann") not in (None, found.k)
    with pytest.raises(SubjectErased):
        await keys_in(tmp_path).known([found.k])


async def test_of_two_who_enrol_a_subject_anew_at_once_one_does(tmp_path: Path) -> None:
    processes = [keys_in(tmp_path) for _ in range(8)]
    await processes[0].enrolled("acme", ["ann"])
    await processes[0].erase("acme", "ann")
    made = await asyncio.gather(*(keys.enrol_anew("acme", "ann") for keys in processes))
    assert len([k for k in made if k is not None]) == 1


async def test_who_is_on_hold_is_not_erased_until_released(tmp_path: Path) -> None:
    one, other = keys_in(tmp_path), keys_in(tmp_path)
    found = (await one.enrolled("acme", ["ann"]))["ann"]
    assert await one.release("acme", "ann") is None
    assert await one.hold("acme", "ann") == await other.hold("acme", "ann") == found.k
    for keys in (one, other, keys_in(tmp_path)):
        with pytest.raises(SubjectHeld):
            await keys.erase("acme", "ann")
    assert await other.known([found.k]) == {found.k: found.key}
    assert await other.enrolled("acme", ["ann"]) == {"ann": found}
    assert await other.release("acme", "ann") == found.k
    assert await one.erase("acme", "ann") is not None
    with pytest.raises(SubjectErased):
        await one.hold("acme", "ann")
    await one.enrol_anew("acme", "ann")
    await one.hold("acme", "ann")
    assert await one.hold("acme", "nobody yet") == (await other.enrolled("acme", ["nobody yet"]))["nobody yet"].k


async def test_of_a_hold_and_an_erasure_at_once_one_comes_first(tmp_path: Path) -> None:
    for attempt in range(10):
        subject, processes = f"c-{attempt}", [keys_in(tmp_path) for _ in range(6)]
        found = (await processes[0].enrolled("acme", [subject]))[subject]
        work = [
            keys.hold("acme", subject) if at % 2 else keys.erase("acme", subject) for at, keys in enumerate(processes)
        ]
        said = await asyncio.gather(*work, return_exceptions=True)
        kinds = {type(one) for one in said}
        assert kinds in ({str, SubjectHeld}, {ErasedSubject, SubjectErased}), kinds
        assert (await _opens(keys_in(tmp_path), found.k)) == (SubjectHeld in kinds)


async def _opens(keys: SubjectKeys, k: str) -> bool:
    try:
        await keys.known([k])
    except SubjectErased:
        return False
    return True


async def test_who_is_enrolled_anew_has_another_key_and_the_old_one_stays_destroyed(tmp_path: Path) -> None:
    keys = keys_in(tmp_path)
    before = (await keys.enrolled("acme", ["ann"]))["ann"]
    assert await keys.enrol_anew("acme", "ann") is None
    await keys.erase("acme", "ann")
    k = await keys.enrol_anew("acme", "ann")
    after = (await keys.enrolled("acme", ["ann"]))["ann"]
    assert (after.k, after.k == before.k, after.key == before.key) == (k, False, False)
    with pytest.raises(SubjectErased):
        await keys.known([before.k])


async def test_a_key_that_is_not_here_is_not_called_erased(tmp_path: Path) -> None:
    keys = keys_in(tmp_path)
    for k in ("0" * 32, "../index", "", "0" * 33):
        with pytest.raises(SubjectKeyMissing):
            await keys.known([k])
    found = (await keys.enrolled("acme", ["ann"]))["ann"]
    with pytest.raises(HiddenCorrupt):
        await keys_in(tmp_path, "another").known([found.k])
    (tmp_path / "subjects" / "keys" / found.k).write_text("{")
    with pytest.raises(SubjectKeysAway):
        await keys.known([found.k])


def test_a_wrapping_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    make_file_key(tmp_path / "key")
    (tmp_path / "key").chmod(0o640)
    with pytest.raises(KmsRefused, match="read by others"):
        FileKms(tmp_path / "key")
    (tmp_path / "short").write_text("00")
    (tmp_path / "short").chmod(0o600)
    for name in ("short", "none"):
        with pytest.raises(KmsRefused):
            FileKms(tmp_path / name)


@pytest.mark.parametrize("value", ["ann@example.org", "", 7, None, {"a": [1, {"b": 0.5}]}, "ä\u2028" * 1000])
async def test_what_was_hidden_opens_again_for_its_job_alone(tmp_path: Path, value: object) -> None:
    hiding = hiding_in(tmp_path)
    found = await hide(hiding, "ann", value)
    opened, keys = await hiding.opened("acme", "job-1", found.value)
    assert (opened, set(keys)) == (value, {found.value.k})
    other = await hide(hiding, "ann", value, job="job-2")
    assert (other.value.d, other.value.c == found.value.c) == (found.value.d, False)
    for tenant, job, one in (("acme", "job-2", found.value), ("globex", "job-1", found.value)):
        with pytest.raises((HiddenCorrupt, BlobMissing)):
            await hiding.opened(tenant, job, one)


async def test_a_ciphertext_that_was_moved_or_changed_does_not_open(tmp_path: Path) -> None:
    hiding = hiding_in(tmp_path)
    one, two = await hide(hiding, "ann", "one"), await hide(hiding, "ann", "two")
    blobs = tmp_path / "blobs"
    (blobs / one.path).write_bytes(two.data)
    with pytest.raises(HiddenCorrupt):
        await hiding.opened("acme", "job-1", one.value)
    (blobs / one.path).write_bytes(one.data[:-1] + bytes([one.data[-1] ^ 1]))
    with pytest.raises(HiddenCorrupt):
        await hiding.opened("acme", "job-1", one.value)
    (blobs / one.path).unlink()
    with pytest.raises(BlobMissing):
        await hiding.opened("acme", "job-1", one.value)


async def test_one_subject_erased_closes_what_is_of_several(tmp_path: Path) -> None:
    hiding = hiding_in(tmp_path)
    found = await hiding.keys.enrolled("acme", ["ann", "bob"])
    both = sealed({one.k: one.key for one in found.values()}, "acme", "job-1", "theirs")
    await hiding.keep([both])
    assert (await hiding.opened("acme", "job-1", both.value))[0] == "theirs"
    await hiding.keys.erase("acme", "bob")
    with pytest.raises(SubjectErased):
        await hiding.opened("acme", "job-1", both.value)


def test_a_tenant_names_no_place_but_its_own() -> None:
    value = HiddenValue("c" * 64, "d" * 64, "e" * 32)
    for tenant in ("..", ".", "a/b", "a b", "ä"):
        path = blob_path(tenant, value)
        assert path.count("/") == 3
        assert ".." not in path


async def test_nothing_that_is_raised_says_whose_it_is(tmp_path: Path) -> None:
    keys = keys_in(tmp_path)
    await keys.enrolled("acme", ["ann"])
    await keys.erase("acme", "ann")
    with pytest.raises(SubjectKeyError) as raised:
        await keys.enrolled("acme", ["ann"])
    assert "ann" not in str(raised.value)


@pytest.mark.parametrize("place", ["s3://bucket", "s3://bucket/keys", "vault+https://v/keys", "file:///keys"])
def test_a_bucket_is_no_folder_of_keys_and_none_is_made_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    make_file_key(tmp_path / "kms")
    settings = SubjectSettings.model_construct(subject_keys=Path(place), subject_kms=str(tmp_path / "kms"))
    with pytest.raises(KmsRefused, match="AETHERIS_SUBJECT_KEYS must be a folder"):
        hiding_of(settings, FolderBlobs(tmp_path / "blobs"), SystemClock())
    assert [path.name for path in tmp_path.iterdir()] == ["kms"]
    settings = SubjectSettings.model_construct(subject_keys=Path("kept:here/keys"), subject_kms=str(tmp_path / "kms"))
    assert hiding_of(settings, FolderBlobs(tmp_path / "blobs"), SystemClock()) is not None


def lacking(*_args: object) -> None:
    raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))


@pytest.mark.parametrize("lacks", ["pathlib.Path.hardlink_to", "fcntl.flock"])
def test_a_file_system_on_which_two_could_not_agree_is_refused_at_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    """As a bucket that is mounted, or a share of files, may be: there two would make two keys of one person."""
    make_file_key(tmp_path / "kms")
    folder = tmp_path / "subjects"
    settings = SubjectSettings.model_construct(subject_keys=folder, subject_kms=str(tmp_path / "kms"))
    assert hiding_of(settings, FolderBlobs(tmp_path / "blobs"), SystemClock()) is not None
    before = sorted(path.name for path in folder.iterdir())
    monkeypatch.setattr(lacks, lacking)
    with pytest.raises(KmsRefused, match=r"AETHERIS_SUBJECT_KEYS: .*hard links or locks"):
        hiding_of(settings, FolderBlobs(tmp_path / "blobs"), SystemClock())
    assert sorted(path.name for path in folder.iterdir()) == before, "nothing is left behind"


async def test_two_hosts_with_folders_of_their_own_make_two_keys_of_one_person(tmp_path: Path) -> None:
    """Why they must share one: erasing reaches one of them, and nobody notices but who opens."""
    make_file_key(tmp_path / "wrapping")
    for host in ("one", "two"):
        (tmp_path / host).mkdir()
        shutil.copy(tmp_path / "wrapping", tmp_path / host)
    one, two = (keys_in(tmp_path / host) for host in ("one", "two"))
    found = (await two.enrolled("acme", ["ann"]))["ann"]
    assert (await one.enrolled("acme", ["ann"]))["ann"].k != found.k
    await one.erase("acme", "ann")
    assert await two.known([found.k]) == {found.k: found.key}
    with pytest.raises(SubjectKeyMissing):
        await one.known([found.k])
