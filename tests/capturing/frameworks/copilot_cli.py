"""GitHub Copilot CLI in offline mode with a model provider of one's own, in one-shot mode.

npm: @github/copilot (node 22; the folder is given as --modules). usage: copilot_cli.py with NODE naming node.
Its own tools run for real, so the ground truth is written from the script and from what such commands do.
"""

import json
import os
import subprocess
import tempfile
from pathlib import Path

import scenario


def shell(command):
    return {"command": command, "description": "Look", "initial_wait": 10, "mode": "sync"}


home = Path(tempfile.mkdtemp(prefix="agent-home-"))
work = home / "project"
work.mkdir()
(work / "notes.txt").write_text("nothing here\n")
CALLS = [
    ("bash", shell("echo 21C"), False),
    *[("bash", shell("cat missing_file.txt"), True)] * 4,
    *[("bash", shell(f"ls missing_folder_{n}"), True) for n in range(4)],
    ("view", {"path": str(work / "missing_file.txt")}, True),
    ("view", {"path": str(work / "notes.txt")}, False),
]
turns = [{"calls": [[name, arguments]]} for name, arguments, _ in CALLS]
scenario.use([*turns, {"text": "Nothing was found."}])
for name, arguments, failed in CALLS:
    scenario.note_call(name, arguments, failed=failed)
settings = {
    "HOME": str(home),
    "COPILOT_OFFLINE": "true",
    "COPILOT_PROVIDER_BASE_URL": scenario.BASE_URL,
    "COPILOT_PROVIDER_API_KEY": "stub",
    "COPILOT_MODEL": "stub-model",
    "COPILOT_AUTO_UPDATE": "false",
}
command = [
    os.environ.get("NODE", "node"),
    str(Path("node_modules/@github/copilot/npm-loader.js").resolve()),
    "--allow-all-tools",
    "--allow-all-paths",
    "-p",
    "Look around in this folder.",
]
subprocess.run(
    command, cwd=work, env=os.environ | settings, stdin=subprocess.DEVNULL, timeout=100, check=False
)
manifest = json.loads(Path("node_modules/@github/copilot/package.json").read_text())
notes = {
    "versions": {"@github/copilot": manifest["version"]},
    "scenario": "one command works, others exit with 1 or 2; a missing and a present file are viewed",
    "instrumentation": "native",
}
Path(os.environ["CAPTURE_NOTES"]).write_text(json.dumps(notes))
