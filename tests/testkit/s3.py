"""An S3 server that nobody here wrote (moto), in a process of its own; it knows conditional puts and versions."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import httpx

from tests.testkit.attempts import fresh
from tests.testkit.external_server import until

BUCKET = "results"
_USER = "aetheris"
_LISTENS = re.compile(rb"Running on (http://127\.0\.0\.1:\d+)")
_SERVER = "import sys; from moto.server import main; main(['-H', '127.0.0.1', '-p', '0'])"


@dataclass(frozen=True)
class S3:
    """Where it listens, and a client of AWS' own."""

    endpoint: str
    process: "subprocess.Popen[bytes]"
    client: Any
    access_key: str
    secret_key: str

    @property
    def env(self) -> dict[str, str]:
        """What every AWS client reads."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": "us-east-1",
        }

    def keys(self, prefix: str = "", bucket: str = BUCKET) -> list[str]:
        """Of the objects below a prefix."""
        found = self.client.list_objects_v2(Bucket=bucket, Prefix=prefix)
        return [one["Key"] for one in found.get("Contents", [])]

    def versions(self, key: str, bucket: str = BUCKET) -> int:
        """How often an object was written."""
        found = self.client.list_object_versions(Bucket=bucket, Prefix=key)
        return len([one for one in found.get("Versions", []) if one["Key"] == key])

    def deny(self, *actions: str) -> None:
        """Refuse these, such as s3:GetObject, until it is called again."""
        _permit(_client("iam", self.endpoint, self.access_key, self.secret_key), *actions)

    def writer_below(self, prefix: str, bucket: str = BUCKET) -> dict[str, str]:
        """What the clients of a user read who reads and lists the bucket, and puts objects below a prefix alone."""
        iam, user = _client("iam", self.endpoint, self.access_key, self.secret_key), fresh("writer")
        iam.create_user(UserName=user)
        may = {"s3:ListBucket": bucket, "s3:GetObject": f"{bucket}/*", "s3:PutObject": f"{bucket}/{prefix}/*"}
        rules = [{"Effect": "Allow", "Action": one, "Resource": f"arn:aws:s3:::{of}"} for one, of in may.items()]
        policy = json.dumps({"Version": "2012-10-17", "Statement": rules})
        iam.put_user_policy(UserName=user, PolicyName="below", PolicyDocument=policy)
        key = iam.create_access_key(UserName=user)["AccessKey"]
        return self.env | {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}

    def freeze(self) -> None:
        """It takes connections and requests, and answers none; `thaw` lets it answer those too."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """It is gone, with all that it kept."""
        self.process.kill()
        self.process.wait()


@contextmanager
def running_s3(folder: Path) -> Generator[S3]:
    """A server with one bucket, which keeps every version."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "s3.log"
    with log.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-c", _SERVER], stdout=out, stderr=out, env={**os.environ})
    try:
        until(lambda: _LISTENS.search(log.read_bytes()) is not None or process.poll() is not None, 60)
        found = _LISTENS.search(log.read_bytes())
        assert found is not None, log.read_text()
        endpoint = found[1].decode()
        access_key, secret_key = _user(endpoint)
        client = _client("s3", endpoint, access_key, secret_key)
        client.create_bucket(Bucket=BUCKET)
        client.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
        yield S3(endpoint, process, client, access_key, secret_key)
    finally:
        process.kill()
        process.wait()


def _user(endpoint: str) -> tuple[str, str]:
    """A user who may do anything; from then on every request needs a signature that is right."""
    iam = _client("iam", endpoint, "nobody", "nothing")
    iam.create_user(UserName=_USER)
    _permit(iam)
    key = iam.create_access_key(UserName=_USER)["AccessKey"]
    httpx.post(f"{endpoint}/moto-api/reset-auth", content="0").raise_for_status()
    return key["AccessKeyId"], key["SecretAccessKey"]


def _permit(iam: Any, *denied: str) -> None:
    rules = [{"Effect": "Allow", "Action": "*", "Resource": "*"}]
    rules += [{"Effect": "Deny", "Action": action, "Resource": "*"} for action in denied]
    policy = json.dumps({"Version": "2012-10-17", "Statement": rules})
    iam.put_user_policy(UserName=_USER, PolicyName="all", PolicyDocument=policy)


def _client(service: str, endpoint: str, access_key: str, secret_key: str) -> Any:
    return boto3.client(
        service,
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
    )
