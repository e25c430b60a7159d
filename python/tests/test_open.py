"""Files that `nfsw.open` returns."""

import errno
import io
import os
import pickle
import random
import select
import signal
import subprocess
import sys
import threading
import time

import pytest

import nfsw


def test_modes_are_those_of_open(place):
    directory, url = place
    with nfsw.open(f"{url}/a", "w") as file:
        file.write("one\ntwo\n")
        file.flush()
        assert (directory / "a").read_text() == "one\ntwo\n"
    with nfsw.open(f"{url}/a") as file:
        assert (file.readline(), list(file), file.mode) == ("one\n", ["two\n"], "r")
    with nfsw.open(f"{url}/a", "ab") as file:
        assert file.tell() == 8
        file.write(b"three\n")
    with nfsw.open(f"{url}/a", "r+b") as file:
        file.seek(4)
        file.write(b"TWO")
        file.seek(-6, io.SEEK_END)
        assert file.read() == b"three\n"
        assert file.truncate(7) == 7
    assert (directory / "a").read_bytes() == b"one\nTWO"
    with pytest.raises(FileExistsError):
        nfsw.open(f"{url}/a", "xb")
    with nfsw.open(f"{url}/b", "xb") as file, pytest.raises(io.UnsupportedOperation):
        file.read()
    with nfsw.open(f"{url}/b", "rb") as file, pytest.raises(io.UnsupportedOperation):
        file.fileno()
    for mode in ("", "rw", "rb+t", "q", "rr"):
        with pytest.raises(ValueError):
            nfsw.open(f"{url}/a", mode)


def test_errors_are_those_of_the_system(place):
    directory, url = place
    (directory / "d").mkdir()
    (directory / "f").write_bytes(b"x")
    for path, mode, kind in (
        ("none", "rb", FileNotFoundError),
        ("d", "rb", IsADirectoryError),
        ("d", "wb", IsADirectoryError),
        ("f/x", "rb", NotADirectoryError),
    ):
        with pytest.raises(kind) as caught:
            nfsw.open(f"{url}/{path}", mode)
        assert caught.value.filename == f"{url}/{path}"
        assert caught.value.kind == "nfs_status"
    with pytest.raises(ValueError):
        nfsw.open("http://x/y")
    with pytest.raises(ConnectionRefusedError):
        nfsw.open("nfs://127.0.0.1:1/x?mountport=1", transport="tcp")


def test_large_reads_fill_memory(place):
    directory, url = place
    contents = random.Random(1).randbytes(3_000_001)
    (directory / "a").write_bytes(contents)
    with nfsw.open(f"{url}/a", "rb") as file:
        memory = bytearray(len(contents) + 10)
        assert file.readinto(memory) == len(contents)
        assert memory[: len(contents)] == contents and not any(memory[len(contents) :])
        assert (file.seek(1_000), file.read()) == (1_000, contents[1_000:])
        assert (file.read(5), file.size) == (b"", len(contents))


def test_a_file_is_as_one_in_memory(place):
    """5,000 random sequences of operations, on several files each, beside io.BytesIO."""
    seed = int(os.environ.get("NFSW_SEED", "7"))
    sequences = int(os.environ.get("NFSW_SEQUENCES", "5000"))
    directory, url = place
    for number in range(sequences):
        choice = random.Random(f"{seed} {number}")
        contents = choice.randbytes(choice.choice([0, 1, 5000, 70_000]))
        (directory / "a").write_bytes(contents)
        model = io.BytesIO(contents)
        buffering = choice.choice([0, -1, -1, 100])
        with nfsw.open(f"{url}/a", "r+b", buffering) as file:
            for _ in range(choice.randint(1, 8)):
                operation = choice.choice(["read", "seek", "end", "write", "flush", "truncate", "tell", "readinto"])
                size = choice.choice([0, 1, 10, 1000, 30_000])
                at = choice.randint(0, 80_000)
                data = choice.randbytes(size)
                if operation == "read":
                    results = [it.read(size) for it in (file, model)]
                elif operation == "readinto":
                    buffers = bytearray(size), bytearray(size)
                    results = [(it.readinto(buffer), buffer) for it, buffer in zip((file, model), buffers)]
                elif operation == "seek":
                    results = [it.seek(at) for it in (file, model)]
                elif operation == "end":
                    results = [it.seek(0, 2) for it in (file, model)]
                elif operation == "write":
                    results = [it.write(data) for it in (file, model)]
                elif operation == "flush":
                    results = [it.flush() for it in (file, model)]
                elif operation == "truncate":
                    # BytesIO does not extend; a file does.
                    size = min(at, len(model.getbuffer()))
                    results = [it.truncate(size) for it in (file, model)]
                else:
                    results = [it.tell() for it in (file, model)]
                assert results[0] == results[1], f"NFSW_SEED={seed}, sequence {number}: {operation}"
        assert (directory / "a").read_bytes() == model.getvalue(), f"NFSW_SEED={seed}, sequence {number}"


def test_readers_pickle_as_their_url_and_position(place):
    directory, url = place
    (directory / "a").write_text("one\ntwo\nthree\n")
    for mode, buffering in (("rb", 0), ("rb", -1), ("r", -1)):
        with nfsw.open(f"{url}/a", mode, buffering) as file:
            file.readline()
            with pickle.loads(pickle.dumps(file)) as again:
                assert again.read() == file.read()
    with nfsw.open(f"{url}/b", "wb") as file, pytest.raises(TypeError):
        pickle.dumps(file)


def in_child(function):
    """Runs a function in a child of fork; returns what it returned, or how it failed. It is killed after 10 s."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            result = function()
        except BaseException as error:
            result = error
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(pickle.dumps(result))
        os._exit(0)
    os.close(writer)
    deadline, told = time.monotonic() + 10, b""
    while select.select([reader], [], [], max(deadline - time.monotonic(), 0))[0]:
        piece = os.read(reader, 1 << 20)
        told += piece
        if not piece:
            break
    else:
        os.kill(child, signal.SIGKILL)
    os.close(reader)
    os.waitpid(child, 0)
    assert told, "the child hangs"
    return pickle.loads(told)


def test_a_child_reads_on_and_writes_nothing(place):
    directory, url = place
    contents = random.Random(2).randbytes(1_000_000)
    (directory / "a").write_bytes(contents)
    with nfsw.open(f"{url}/a", "rb") as file, nfsw.open(f"{url}/b", "wb", 0) as written:
        head = file.read(100_001)
        written.write(b"x")
        assert in_child(file.read) == contents[100_001:]
        refused = in_child(lambda: written.write(b"y"))
        assert isinstance(refused, OSError) and refused.errno == errno.EBADF
        assert head + file.read() == contents
    assert (directory / "b").read_bytes() == b"x"


def test_a_fork_in_the_middle_of_a_read_does_not_hang(own_server):
    (own_server.directory / "a").write_bytes(b"x" * 1_000_000)
    file = nfsw.open(f"{own_server.url}/a", "rb")
    file.read(10)
    own_server.process.send_signal(signal.SIGSTOP)
    thread = threading.Thread(target=file.read)
    thread.start()
    time.sleep(0.3)
    failed = in_child(lambda: file.read(10))
    assert isinstance(failed, OSError)
    own_server.process.send_signal(signal.SIGCONT)
    # Another child opens the file of the path again, and gets the right bytes.
    thread.join()
    assert in_child(lambda: nfsw.open(f"{own_server.url}/a", "rb").read(3)) == b"xxx"
    file.close()


def test_a_silent_server_is_a_timeout(own_server):
    (own_server.directory / "a").write_bytes(b"x" * 1_000_000)
    with nfsw.open(f"{own_server.url}/a", "rb", timeout=0.5) as file:
        file.read(1)
        own_server.process.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            file.seek(900_000)
            file.read(10)
        assert 0.4 < time.monotonic() - began < 1.5
        own_server.process.send_signal(signal.SIGCONT)
        file.seek(0)
        assert file.read() == b"x" * 1_000_000, "what was interrupted can be repeated"


BLOCKED = """
import signal, sys, nfsw
# What is started in the background of a script ignores it.
signal.signal(signal.SIGINT, signal.default_int_handler)
file = nfsw.open(sys.argv[1], "rb")
file.read(1)
print("ready", flush=True)
sys.stdin.readline()
try:
    file.seek(900_000)
    print("reading", flush=True)
    file.read(100)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_an_interrupt_ends_a_blocked_read(own_server):
    (own_server.directory / "a").write_bytes(b"x" * 1_000_000)
    arguments = [sys.executable, "-c", BLOCKED, f"{own_server.url}/a"]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "ready\n"
        own_server.process.send_signal(signal.SIGSTOP)
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "reading\n"
        time.sleep(0.5)
        began = time.monotonic()
        child.send_signal(signal.SIGINT)
        assert child.stdout.readline() == "interrupted\n"
        assert time.monotonic() - began < 0.2


def test_other_threads_run_while_one_waits(own_server):
    (own_server.directory / "a").write_bytes(b"x" * 1_000_000)
    file = nfsw.open(f"{own_server.url}/a", "rb", timeout=2)
    own_server.process.send_signal(signal.SIGSTOP)

    def read():
        with pytest.raises(TimeoutError):
            file.read(10)

    thread = threading.Thread(target=read)
    thread.start()
    count = 0
    while thread.is_alive():
        count += 1
        time.sleep(0.01)
    assert count > 100
    own_server.process.send_signal(signal.SIGCONT)
    file.close()
