"""Qwen Code, a command-line agent, in one-shot mode.

npm: @qwen-code/qwen-code (node 22; the folder is given as --modules). usage: qwen_code.py
default|sensitive|guard with NODE naming node. Its own tools run for real, so the ground truth is written
from the script and from what such commands do.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import scenario


def shell(command, description="Look"):
    return {"command": command, "description": description, "is_background": False}


CALLS = [
    ("run_shell_command", shell("echo 21C"), False),
    *[("run_shell_command", shell("cat missing_file.txt"), True)] * (6 if "guard" in sys.argv else 4),
    *[("run_shell_command", shell(f"ls missing_folder_{n}"), True) for n in range(6)],
    ("glob", {"pattern": "*.txt"}, False),
    ("list_directory", {"path": "/nowhere"}, True),
]
if "sensitive" in sys.argv:
    CALLS = [*CALLS[:3], CALLS[-1]]
if "flail" in sys.argv:
    pair = [("run_shell_command", shell(f"cat missing_{name}.txt"), True) for name in "ab"]
    CALLS = pair * 8
home = Path(tempfile.mkdtemp(prefix="agent-home-"))
work = home / "project"
work.mkdir()
(work / "notes.txt").write_text("nothing here\n")
(home / ".qwen").mkdir()
DENY = 'echo \'{"decision":"deny","reason":"stuck"}\''
GATE = [{"matcher": "*", "hooks": [{"type": "command", "command": DENY, "timeout": 5000}]}]
(home / ".qwen" / "settings.json").write_text(
    json.dumps(
        {
            "telemetry": {
                "enabled": True,
                "target": "local",
                "otlpEndpoint": os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"],
                "otlpProtocol": "http",
                "logPrompts": True,
                "includeSensitiveSpanAttributes": "sensitive" in sys.argv,
            },
            "hooks": {"PreToolUse": GATE} if "deny" in sys.argv else {},
            "privacy": {"usageStatisticsEnabled": False},
            "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
            "security": {"auth": {"selectedType": "openai"}},
        }
    )
)
scenario.use(
    [*[{"calls": [[name, arguments]]} for name, arguments, _ in CALLS], {"text": "Nothing was found."}]
)
for name, arguments, failed in CALLS[:5] if "guard" in sys.argv else CALLS:
    scenario.note_call(name, arguments, failed=None if "deny" in sys.argv else failed)
command = [
    os.environ.get("NODE", "node"),
    str(Path("node_modules/@qwen-code/qwen-code/cli.js").resolve()),
    "--yolo",
    "--openai-base-url",
    scenario.BASE_URL,
    "--openai-api-key",
    "stub",
    "--model",
    "stub-model",
    "Look around in this folder.",
]
subprocess.run(
    command,
    cwd=work,
    env=os.environ | {"HOME": str(home)},
    stdin=subprocess.DEVNULL,
    timeout=100,
    check=False,
)
manifest = json.loads(Path("node_modules/@qwen-code/qwen-code/package.json").read_text())
Path(os.environ["CAPTURE_NOTES"]).write_text(
    json.dumps(
        {
            "versions": {"@qwen-code/qwen-code": manifest["version"]},
            "never_started": "list_directory is not registered by default: the call fails without a span",
            "scenario": "one command works, others fail; guard: its own guard ends it at the fifth repeat",
            "instrumentation": "native",
        }
    )
)
