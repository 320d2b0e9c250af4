"""In a folder and in a real S3 store: whole or not at all, one winner, nothing sent twice, nothing believed unread."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairway.deploy.publish import places, publish, pull
from fairway.deploy.publish import s3 as s3_module
from fairway.deploy.publish.folder_store import FolderStore
from fairway.deploy.publish.objects import POINTER, ObjectDestination, make_object_key
from fairway.deploy.publish.s3 import S3Store
from fairway.diagnostics import Finding
from fairway.diagnostics.errors import UserError
from fairway.record.files import hash_file

from .models import answers, bytes_of, make_model

Killed = Callable[[Callable[[], object]], int]


def refused(call: Callable[[], Any]) -> Finding:
    with pytest.raises(UserError) as caught:
        call()
    return caught.value.finding


def store_of(place: str) -> Any:
    destination = places.find_destination(place)
    assert isinstance(destination, ObjectDestination)
    return destination.store


def overwrite(place: str, key: str, data: bytes) -> None:
    """Write as a user would who does not know the layout of the store."""
    store = store_of(place)
    if place.startswith("s3:"):
        store._client.put_object(Body=data, **store._at(key))
    else:
        (store.root / key).write_bytes(data)


@pytest.mark.parametrize("external", [None, "net.onnx.data", "checkpoints/w.safetensors"])
def test_what_comes_back_is_byte_for_byte_what_was_verified(place: str, tmp_path: Path, external: str | None) -> None:
    model = make_model(tmp_path / "a", external=external)
    done = publish(model, place)
    back = pull(place, tmp_path / "back")
    assert bytes_of(tmp_path / "back") == bytes_of(tmp_path / "a")
    assert (back.version, back.digest, back.verdict) == (done.version, done.digest, "verified")
    x = np.ones((2, 3), np.float32)
    assert np.array_equal(answers(back.model, x), answers(model, x))


def test_the_same_bytes_are_neither_sent_nor_published_twice(place: str, tmp_path: Path) -> None:
    model = make_model(tmp_path / "a")
    first, second = publish(model, place), publish(model, place)
    assert len(first.sent) == 2
    assert (second.sent, second.sent_bytes, second.version) == ((), 0, first.version)


def test_every_version_can_be_pulled_by_its_number_and_by_its_digest(place: str, tmp_path: Path) -> None:
    models = [make_model(tmp_path / str(seed), seed=seed) for seed in range(3)]
    done = [publish(model, place) for model in models]
    assert [one.version for one in done] == ["1", "2", "3"]
    assert pull(place, tmp_path / "last").model.read_bytes() == models[2].read_bytes()
    assert pull(place, tmp_path / "first", "1").model.read_bytes() == models[0].read_bytes()
    assert pull(place, tmp_path / "second", done[1].digest[:12]).model.read_bytes() == models[1].read_bytes()
    finding = refused(lambda: pull(place, tmp_path / "fourth", "4"))
    assert finding.code == "FW804"
    assert finding.seen.endswith("there is no version '4'; there are 1, 2, 3")


def test_weights_that_two_versions_share_are_sent_once(place: str, tmp_path: Path) -> None:
    model = make_model(tmp_path / "a", external="checkpoints/w.safetensors")
    publish(model, place)
    record = tmp_path / "a/net.fairway.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "remark": "judged again"}))
    assert publish(model, place).sent == ("net.fairway.json",)


def race(place: str, models: list[Path]) -> list[str]:
    """Publishes all of them at once, each having read the pointer before any moves it; the versions or the codes."""
    barrier = threading.Barrier(len(models))
    outcomes = ["?"] * len(models)

    def run(number: int) -> None:
        met = False

        def wait(event: object) -> None:
            nonlocal met
            if not met:
                met = True
                barrier.wait(60)

        try:
            outcomes[number] = publish(models[number], place, on_event=wait).version
        except UserError as error:
            outcomes[number] = error.finding.code

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(models))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


@pytest.mark.parametrize("before", [False, True], ids=["at first", "later"])
def test_of_racing_publishers_one_wins_and_nothing_is_torn(place: str, tmp_path: Path, before: bool) -> None:
    if before:
        publish(make_model(tmp_path / "before", seed=99), place)
    models = [make_model(tmp_path / str(seed), seed=seed) for seed in range(4)]
    outcomes = race(place, models)
    number = "2" if before else "1"
    assert sorted(outcomes) == [number, "FW803", "FW803", "FW803"]
    back = pull(place, tmp_path / "back")
    winner = models[outcomes.index(number)]
    assert bytes_of(tmp_path / "back") == bytes_of(winner.parent)
    assert back.version == number


def test_racing_publishers_of_the_same_bytes_all_succeed(place: str, tmp_path: Path) -> None:
    models = [make_model(tmp_path / str(number)) for number in range(3)]
    assert race(place, models) == ["1", "1", "1"]


def die(*words: object, **more: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("method", ["send", "create", "swap"])
def test_a_killed_publisher_keeps_the_version_and_sends_nothing_twice(
    place: str, tmp_path: Path, killed: Killed, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    old, new = make_model(tmp_path / "old"), make_model(tmp_path / "new", seed=1)
    publish(old, place)
    with monkeypatch.context() as patch:
        patch.setattr(S3Store if place.startswith("s3:") else FolderStore, method, die)
        assert killed(lambda: publish(new, place)) == signal.SIGKILL
    assert pull(place, tmp_path / "back").model.read_bytes() == old.read_bytes()
    done = publish(new, place)
    assert len(done.sent) == (2 if method == "send" else 0)
    assert done.version == "2"
    assert pull(place, tmp_path / "again").model.read_bytes() == new.read_bytes()
    if not place.startswith("s3:"):
        assert [path.name for path in Path(place).glob(".*")] == [], "what the dead left is swept"


def listen(patch: pytest.MonkeyPatch, sent: list[int], most: int) -> None:
    """Notes the numbers of the parts that are sent, one by one, and dies before there are more than allowed."""
    begin = S3Store.__init__

    def listening(self: Any, *words: Any) -> None:
        begin(self, *words)
        send = self._client.upload_part

        def note(**words: Any) -> Any:
            if len(sent) == most:
                die()
            sent.append(words["PartNumber"])
            return send(**words)

        self._client.upload_part = note

    patch.setattr(S3Store, "__init__", listening)
    patch.setattr(s3_module, "PART_BYTES", 5 * 2**20)
    patch.setattr(s3_module, "MAX_SENDERS", 1)


def test_parts_that_arrived_before_a_kill_are_not_sent_again(
    s3: str, tmp_path: Path, killed: Killed, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(tmp_path / "a", rows=2**20, external="net.onnx.data")  # 16 MB: four parts, the last one small
    with monkeypatch.context() as patch:
        listen(patch, [], most=2)
        assert killed(lambda: publish(model, s3)) == signal.SIGKILL
    assert refused(lambda: pull(s3, tmp_path / "back")).code == "FW804"
    sent: list[int] = []
    with monkeypatch.context() as patch:
        listen(patch, sent, most=9)
        publish(model, s3)
    assert sent == [3, 4]
    pull(s3, tmp_path / "back")
    assert bytes_of(tmp_path / "back") == bytes_of(tmp_path / "a")
    unfinished = store_of(s3)._list_uploads(make_object_key(hash_file(tmp_path / "a/net.onnx.data")))
    assert unfinished == [], "no unfinished upload is left"


def test_parts_that_hold_other_bytes_are_sent_again(s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    listen(monkeypatch, sent, most=9)
    model = make_model(tmp_path / "a", rows=2**19, external="net.onnx.data")  # 8 MB: two parts
    store = store_of(s3)
    at = store._at(make_object_key(hash_file(tmp_path / "a/net.onnx.data")))
    upload = store._client.create_multipart_upload(**at)["UploadId"]
    store._client.upload_part(UploadId=upload, PartNumber=1, Body=b"x" * 5 * 2**20, **at)
    sent.clear()
    publish(model, s3)
    assert sent == [1, 2]
    pull(s3, tmp_path / "back")
    assert bytes_of(tmp_path / "back") == bytes_of(tmp_path / "a")


def test_a_damaged_object_is_noticed_by_pull_and_repaired_by_publish(place: str, tmp_path: Path) -> None:
    model = make_model(tmp_path / "a")
    publish(model, place)
    good = model.read_bytes()
    overwrite(place, make_object_key(hash_file(model)), good[:-1] + b"?")
    finding = refused(lambda: pull(place, tmp_path / "back"))
    assert finding.code == "FW802"
    assert finding.seen == f"{place}: net.onnx has another sha256 than when it was published"
    assert not (tmp_path / "back").exists()
    assert publish(model, place).sent == ("net.onnx",)
    assert pull(place, tmp_path / "back").model.read_bytes() == good


def test_a_file_that_changes_while_it_is_sent_is_not_published(place: str, tmp_path: Path) -> None:
    model = make_model(tmp_path / "a")
    other = make_model(tmp_path / "b", seed=1).read_bytes()
    finding = refused(lambda: publish(model, place, on_event=lambda event: model.write_bytes(other)))
    assert finding.code == "FW802"
    assert finding.seen == f"{place}: net.onnx has another sha256 there than in its record"
    assert refused(lambda: pull(place, tmp_path / "back")).code == "FW804"


def test_a_manifest_that_was_changed_is_refused(place: str, tmp_path: Path) -> None:
    done = publish(make_model(tmp_path / "a"), place)
    overwrite(place, f"versions/{done.digest}.json", b"{}")
    assert refused(lambda: pull(place, tmp_path / "back")).code == "FW802"


@pytest.mark.parametrize("text", [b"hello", b'{"format": 7, "versions": [{}]}'])
def test_a_pointer_of_somebody_elses_is_neither_believed_nor_replaced(place: str, tmp_path: Path, text: bytes) -> None:
    model = make_model(tmp_path / "a")
    publish(model, place)
    overwrite(place, POINTER, text)
    assert refused(lambda: pull(place, tmp_path / "back")).code == "FW804"
    assert refused(lambda: publish(make_model(tmp_path / "b", seed=1), place)).code == "FW804"
    assert store_of(place).read(POINTER).data == text


def test_nothing_is_pulled_over_a_folder_that_is_there(place: str, tmp_path: Path) -> None:
    publish(make_model(tmp_path / "a"), place)
    assert refused(lambda: pull(place, tmp_path / "a")).code == "FW008"
    assert refused(lambda: pull(place, tmp_path / "none/b")).code == "FW009"


def test_a_place_where_nothing_was_published_says_so(place: str, tmp_path: Path) -> None:
    finding = refused(lambda: pull(place, tmp_path / "back"))
    assert (finding.code, finding.seen) == ("FW804", f"{place}: nothing was published there")


def test_a_folder_below_one_that_is_missing_is_neither_read_nor_made(tmp_path: Path) -> None:
    nowhere = str(tmp_path / "missing" / "net")
    assert refused(lambda: pull(nowhere, tmp_path / "back")).code == "FW804"
    finding = refused(lambda: publish(make_model(tmp_path / "a"), nowhere))
    assert (finding.code, finding.seen) == ("FW009", f"the folder {tmp_path / 'missing'} does not exist")
    assert not (tmp_path / "missing").exists()


def test_a_wrong_secret_is_refused_by_the_store(s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "guessed")
    finding = refused(lambda: publish(make_model(tmp_path / "a"), s3))
    assert finding.code == "FW806"
    assert "SignatureDoesNotMatch" in finding.seen


def test_a_bucket_that_is_not_there_is_a_finding(s3: str, tmp_path: Path) -> None:
    assert refused(lambda: publish(make_model(tmp_path / "a"), "s3://no-such-bucket/net")).code == "FW806"


@pytest.mark.parametrize("ignored", ["IfNoneMatch", "IfMatch"])
def test_a_store_that_ignores_a_condition_is_refused_before_anything_is_visible(
    s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ignored: str
) -> None:
    begin = S3Store.__init__

    def deaf(self: Any, *words: Any) -> None:
        begin(self, *words)
        put = self._client.put_object
        self._client.put_object = lambda **given: put(**{k: v for k, v in given.items() if k != ignored})

    with monkeypatch.context() as patch:
        patch.setattr(S3Store, "__init__", deaf)
        finding = refused(lambda: publish(make_model(tmp_path / "a"), s3))
    assert (finding.code, finding.seen) == ("FW805", f"{s3}: {ignored} was ignored")
    assert refused(lambda: pull(s3, tmp_path / "back")).code == "FW804"


@pytest.mark.parametrize("words", ["", "s3://", "s3://UPPER/x", "gs://bucket/x", "mlflow:", "mlflow:a/b", "triton:"])
def test_words_that_name_no_destination_are_refused(words: str, tmp_path: Path) -> None:
    assert refused(lambda: publish(make_model(tmp_path), words)).code == "FW006"
