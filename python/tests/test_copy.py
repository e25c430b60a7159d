"""Copies, syncs and coroutines."""

import asyncio

import pytest

import nfsw


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def tree(tmp_path):
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "a").write_bytes(b"a")
    (tree / "sub" / "b.o").write_bytes(b"b" * 300_000)
    return tree


def test_a_tree_is_copied_and_told(place, tree):
    directory, url = place
    told = []
    counts = nfsw.copy(tree, url, recursive=True, verify=True, events=told.append)
    assert (counts.copied, counts.directories, counts.verified, counts.failed) == (2, 2, 2, 0)
    assert (directory / "tree" / "sub" / "b.o").read_bytes() == b"b" * 300_000
    files = {event["source"]: event["bytes"] for event in told if event["event"] == "file"}
    assert files == {str(tree / "a"): 1, str(tree / "sub" / "b.o"): 300_000}
    counts = nfsw.copy([tree / "a"], f"{url}/tree/a", no_clobber=True)
    assert counts.skipped == {"exists": 1}


def test_what_fails_is_raised_after_the_rest(place, tree, tmp_path):
    directory, url = place
    with pytest.raises(FileNotFoundError) as caught:
        nfsw.copy(f"{url}/none", tmp_path)
    assert caught.value.kind == "source_missing"
    with pytest.raises(OSError) as caught:
        nfsw.copy([f"{url}/none", f"{url}/no", tree / "a"], url)
    assert isinstance(caught.value, nfsw.CopyError) and len(caught.value.errors) == 2
    assert caught.value.counts.copied == 1 and (directory / "a").exists()
    for options in ({"sparse": "q"}, {"jobs": 0}, {"update": True, "no_clobber": True}):
        with pytest.raises(ValueError):
            nfsw.copy(tree / "a", url, **options)
    with pytest.raises(TypeError):
        nfsw.copy(tree / "a", url, no_such=True)


def test_an_exception_of_events_ends_the_copy(place, tree):
    def stop(event):
        raise KeyError(event["event"])

    with pytest.raises(KeyError):
        nfsw.copy(tree, place[1], recursive=True, events=stop)


def test_a_sync_finds_nothing_to_do_the_second_time(place, tree):
    directory, url = place
    (directory / "old").write_bytes(b"x")
    counts = nfsw.sync(tree, url, delete=True, exclude="*.o")
    assert (counts.copied, counts.deleted) == (1, 1)
    assert not (directory / "sub" / "b.o").exists()
    told = []
    counts = nfsw.sync(tree, url, events=told.append, dry_run=True)
    assert [(event["event"], event["change"], event["dry_run"]) for event in told if event["event"] == "file"] == [
        ("file", "new", True)
    ]
    nfsw.sync(tree, url)
    counts = nfsw.sync(tree, url)
    assert (counts.copied, counts.skipped) == (0, {"unchanged": 2})


def test_coroutines_do_the_same(place, tree):
    directory, url = place

    async def run():
        told = []
        counts = await nfsw.aio.copy(tree, url, recursive=True, events=told.append)
        assert counts.copied == 2
        await asyncio.sleep(0)
        assert sorted(event["event"] for event in told) == ["directory", "directory", "file", "file"]
        assert (await nfsw.aio.sync(tree, f"{url}/tree")).copied == 0
        async with await nfsw.aio.open(f"{url}/f", "w+b") as file:
            assert await file.write(b"one\ntwo\nthree") == 13
            assert await file.seek(0) == 0
            assert [line async for line in file] == [b"one\n", b"two\n", b"three"]
            await file.seek(4)
            assert (await file.readline(), file.tell()) == (b"two\n", 8)
            assert await file.write(b"T") == 1
            await file.flush()
            assert (directory / "f").read_bytes() == b"one\ntwo\nThree"
            assert (await file.seek(-2, 2), await file.read(), await file.truncate(3)) == (11, b"ee", 3)
        assert (directory / "f").read_bytes() == b"one"
        many = [await nfsw.aio.open(f"{url}/tree/sub/b.o", "rb") for _ in range(8)]
        assert await asyncio.gather(*(file.read() for file in many)) == [b"b" * 300_000] * 8
        with pytest.raises(FileNotFoundError):
            await nfsw.aio.open(f"{url}/none")

    asyncio.run(run())


def test_a_coroutine_can_be_cancelled(own_server):
    (own_server.directory / "a").write_bytes(b"x" * 1_000_000)

    async def run():
        file = await nfsw.aio.open(f"{own_server.url}/a")
        await file.read(1)
        own_server.process.send_signal(19)
        await file.seek(900_000)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(file.read(10), 0.3)
        own_server.process.send_signal(18)
        assert await file.read(10) == b"x" * 10
        await file.close()

    asyncio.run(run())
