"""An S3 server on the loopback interface, in a separate process, and its buckets."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import obstore
from obstore.store import S3Store

KEY = "AKIAIOSFODNN7SPECIMEN"
SECRET = "wJalrXUtnFEMI-K7MDENG-bPxRfiCYSPECIMENKEY"


@dataclass(frozen=True)
class Server:
    port: int
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that a user sets."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_MAX_ATTEMPTS": "2",
        }

    def requests(self) -> list[str]:
        """Return the requests so far, such as `GET /bucket/key HTTP/1.1`."""
        lines = self.log.read_text().splitlines()
        return [line.split('"')[1] for line in lines if "HTTP/1.1" in line and line.count('"') >= 2]

    def make_bucket(self, name: str) -> Bucket:
        request = urllib.request.Request(f"{self.url}/{name}", method="PUT")
        urllib.request.urlopen(request).close()
        return Bucket(self, name)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@dataclass(frozen=True)
class Bucket:
    server: Server
    name: str

    @property
    def url(self) -> str:
        return f"s3://{self.name}"

    @property
    def objects(self) -> S3Store:
        return self.below(None)

    def below(self, prefix: str | None) -> S3Store:
        return S3Store(
            self.name,
            prefix=prefix,
            endpoint=self.server.url,
            access_key_id=KEY,
            secret_access_key=SECRET,
            region="us-east-1",
            client_options={"allow_http": True},
        )

    def upload(self, path: Path, name: str | None = None) -> str:
        """Copy a directory into the bucket, and return its address."""
        name = name or path.name
        for file in path.rglob("*"):
            if file.is_file():
                self.put(f"{name}/{file.relative_to(path).as_posix()}", file.read_bytes())
        return f"{self.url}/{name}"

    def names(self, prefix: str | None = None) -> list[str]:
        return [meta["path"] for meta in obstore.list(self.objects, prefix).collect()]

    def contents(self, prefix: str | None = None) -> dict[str, bytes]:
        return {key: bytes(obstore.get(self.objects, key).bytes()) for key in self.names(prefix)}

    def put(self, key: str, data: bytes) -> None:
        obstore.put(self.objects, key, data)

    def delete(self, *keys: str) -> None:
        obstore.delete(self.objects, list(keys))


@contextmanager
def serve(directory: Path, environment: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Run a server until the end of the context."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = directory / f"s3-{port}.log"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, **(environment or {})})
    server = Server(port, process, log)
    try:
        while process.poll() is None:
            with socket.socket() as attempt:
                if attempt.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        assert process.poll() is None, log.read_text()
        yield server
    finally:
        server.stop()
