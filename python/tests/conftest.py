"""A server of `nfsw serve` for all tests; NFSW is the built command."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def command():
    found = os.environ.get("NFSW_BINARY") or ROOT / "target" / "debug" / "nfsw"
    if not Path(found).exists():
        raise RuntimeError(f"{found} is missing: cargo build -p nfsw, or NFSW_BINARY=PATH")
    return str(found)


class Served:
    """A directory and the server that serves it."""

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


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    served = Served(tmp_path_factory.mktemp("served"))
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
    """A directory of a test: its path here, and its URL."""
    name = "".join(letter if letter.isalnum() else "_" for letter in request.node.name)
    directory = server.directory / name
    directory.mkdir()
    yield directory, f"{server.url}/{name}"
    shutil.rmtree(directory, ignore_errors=True)
