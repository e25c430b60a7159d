"""Every example of docs/python.md, in one directory and in order."""

import re
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "python.md"


def test_the_examples_run(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"cat")
    examples = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(), re.M | re.S)
    assert len(examples) == 5
    for example in examples:
        exec(compile(example.replace("nfs://nas/srv", place[1]), str(DOCUMENT), "exec"), {"__name__": "example"})
