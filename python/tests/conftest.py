"""The servers that tests run with: `nfsw serve` and nfs-ganesha."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[2]


def built(name, variable):
    found = os.environ.get(variable) or ROOT / "target" / "debug" / name
    if not Path(found).exists():
        raise RuntimeError(f"{found} is missing: cargo test --workspace --no-run, or {variable}=PATH")
    return str(found)


def command():
    return built("nfsw", "NFSW_BINARY")


class Served:
    """A directory, and `nfsw serve` for it."""

    def __init__(self, directory):
        self.directory = Path(directory)
        arguments = [command(), "serve", str(directory), "--listen", "127.0.0.1:0", "--json"]
        self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        told = json.loads(self.process.stdout.readline())
        self.url = told["url"]
        self.host, port = told["address"].rsplit(":", 1)
        self.port = int(port)

    def options(self):
        return {"host": self.host, "port": self.port}

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()


class Ganesha:
    """A directory, and nfs-ganesha for it, which needs root."""

    def __init__(self):
        self.host = "127.111." + ".".join(map(str, divmod(os.getpid() % 65536, 256)))
        arguments = [built("private-ganesha", "PRIVATE_GANESHA"), self.host]
        self.process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        path = self.process.stdout.readline().strip()
        if not path:
            raise RuntimeError("nfs-ganesha does not start: see above")
        self.directory = Path(path)
        self.url = f"nfs://{self.host}{path}"

    def options(self):
        return {"host": self.host}

    def stop(self):
        self.process.communicate()


@pytest.fixture(scope="session", params=["nfsw-serve", "nfs-ganesha"])
def server(request, tmp_path_factory):
    served = Ganesha() if request.param == "nfs-ganesha" else Served(tmp_path_factory.mktemp("served"))
    yield served
    served.stop()


@pytest.fixture
def own_server(tmp_path):
    directory = tmp_path / "served"
    directory.mkdir()
    served = Served(directory)
    yield served
    served.process.send_signal(18)
    served.stop()


@pytest.fixture
def place(server, request):
    """A directory of a test on each server: its path here, and its URL."""
    name = "".join(letter if letter.isalnum() else "_" for letter in request.node.name)
    directory = server.directory / name
    directory.mkdir()
    yield directory, f"{server.url}/{name}"
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def top(place):
    """The path of that directory on the server."""
    return urlsplit(place[1]).path
